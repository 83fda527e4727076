"""What can go wrong that a person can act on. Each message is one sentence with the next step.

TinputError
├── BadText          the text cannot be tokenized (a lone surrogate, nothing in it)
├── BadIds           ids, positions or sizes that the model cannot take
│   └── TooLong      more tokens than the position table has rows
├── BadModel         the model cannot be opened
│   ├── NotFound     no such folder or name
│   ├── NotAllowed   a path that this server may not read
│   ├── Unknown      an architecture that transformers does not have
│   └── BadFile      a file is missing, cut short or not what it says
└── NotRecorded      the forward pass did not get as far as was asked
"""

__all__ = [
    "BadFile",
    "BadIds",
    "BadModel",
    "BadText",
    "NotAllowed",
    "NotFound",
    "NotRecorded",
    "TinputError",
    "TooLong",
    "Unknown",
]


class TinputError(Exception):
    """The root: everything that tinput raises on purpose. `str(error)` is the sentence to show."""


class BadText(TinputError):
    """The text cannot be tokenized."""


class BadIds(TinputError):
    """Token ids, positions or sizes that the model cannot take."""


class TooLong(BadIds):
    """More tokens than the position table has rows. `usable` is how many fit."""

    def __init__(self, message: str, usable: int):
        super().__init__(message)
        self.usable = usable


class BadModel(TinputError):
    """The model cannot be opened."""


class NotFound(BadModel):
    """No such folder, and no such bundled name."""


class NotAllowed(BadModel):
    """A path that this server may not read."""


class Unknown(BadModel):
    """An architecture that the installed transformers does not have."""


class BadFile(BadModel):
    """A file is missing, cut short, or not what it says it is."""


class NotRecorded(TinputError):
    """The forward pass ended before the block input could be recorded."""
