"""What can go wrong that a person can act on. Each message is one sentence with the next step.

TinputError
├── BadText          the text cannot be tokenized (a lone surrogate, nothing in it)
├── BadIds           ids, positions or sizes that the model cannot take
│   └── TooLong      more tokens than the position table has rows
├── BadModel         the model cannot be opened
│   ├── NotFound     no such folder or name
│   │   └── Private  no such name on the Hub for someone without (another) token: private, or not there at all
│   ├── NotAllowed   a path that this server may not read
│   │   └── Gated    a model on the Hub whose owner wants to be asked first
│   ├── Unreachable  the Hub cannot be reached, or does not answer as it should
│   ├── Unknown      an architecture that transformers does not have
│   └── BadFile      a file is missing, cut short or not what it says
│       └── NoWeights    there are no weights that can be read: the configuration is all there is
│           └── Pickled  only as a pickle, which is read when it is asked for
└── NotRecorded      the forward pass did not get as far as was asked
"""

__all__ = [
    "BadFile",
    "BadIds",
    "BadModel",
    "BadText",
    "Gated",
    "NoWeights",
    "NotAllowed",
    "NotFound",
    "NotRecorded",
    "Pickled",
    "Private",
    "TinputError",
    "TooLong",
    "Unknown",
    "Unreachable",
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


class Private(NotFound):
    """The Hub says the same (401) of a private model and of none at all, so neither can be ruled out."""


class NotAllowed(BadModel):
    """A path that this server may not read."""


class Gated(NotAllowed):
    """A model on the Hub that its owner shows only to those whose request was granted.

    config: what the Hub tells everybody of its configuration: {"model_type": ..., "architectures": [...]}
    """

    def __init__(self, message: str, config: dict | None = None):
        super().__init__(message)
        self.config = config


class Unreachable(BadModel):
    """The Hub cannot be reached, or answers with errors. Trying again later may help."""


class Unknown(BadModel):
    """An architecture that the installed transformers does not have. `config` is config.json as it stands."""

    def __init__(self, message: str, config: dict | None = None):
        super().__init__(message)
        self.config = config


class BadFile(BadModel):
    """A file is missing, cut short, or not what it says it is."""


class NoWeights(BadFile):
    """There are no weights that can be read. What follows from the configuration alone can still be had."""


class Pickled(NoWeights):
    """The weights are pickles alone, `size` bytes of them: `open_model(..., allow_pickle=True)` reads them.

    fact: that it is so, without the next step; then: what that step does. The app has a button in place of Python.
    """

    def __init__(self, message: str, *, size: int, fact: str, then: str):
        super().__init__(message)
        self.size, self.fact, self.then = size, fact, then


class NotRecorded(TinputError):
    """The forward pass ended before the block input could be recorded."""
