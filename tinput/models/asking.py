"""Asking the Hub for something until it answers, and what to say when it does not.

Errors are told in sentences of our own, with no chain behind them: those of huggingface_hub and its HTTP client carry
the request, with the token in its headers and signatures in its addresses.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

from tinput.errors import BadFile, Gated, NotAllowed, NotFound, Private, Unreachable
from tinput.models import progress
from tinput.models.progress import Meter

__all__ = [
    "Missing",
    "Retry",
    "Tries",
    "endpoint",
    "explained",
    "gated",
    "host",
    "offline",
    "persistently",
    "refused",
    "timeout",
]

TRIES = 4
WAITS = (0.5, 1.0, 2.0)  # seconds before each further try, unless the server says how many
LONGEST_WAIT = 30.0  # of what a server may say: a person waits

T = TypeVar("T")


class Retry(Exception):
    """It may go better another time. after: seconds that the server asks to wait, or None; why: for the sentence."""

    def __init__(self, why: str, after: float | None = None):
        super().__init__(why)
        self.why, self.after = why, after


class Tries:
    """Counts failures in a row: `failed` waits and returns, or raises Unreachable when there were too many."""

    def __init__(self, what: str, meter: Meter):
        self.what, self._meter, self._failures = what, meter, 0

    def went_well(self) -> None:
        self._failures = 0

    def failed(self, retry: Retry) -> None:
        self._failures += 1
        too_long = retry.after is not None and retry.after > LONGEST_WAIT
        if self._failures >= TRIES or too_long:
            later = f"in {retry.after:,.0f} seconds" if too_long else "later"
            raise Unreachable(f"{self.what} could not be read from {host()}: {retry.why}; try again {later}.")
        self._meter.sleep(WAITS[self._failures - 1] if retry.after is None else retry.after)


# --- what huggingface_hub is set up with


def endpoint() -> str:
    """The Hub's address."""
    from huggingface_hub import constants

    return constants.ENDPOINT


def host() -> str:
    """The Hub by a name that can be shown: an address may hold a password."""
    found = urlsplit(endpoint())
    if found.hostname == "huggingface.co":
        return "the Hub"
    return f"the Hub at {found.hostname}" + (f":{found.port}" if found.port else "")


def offline() -> bool:
    """Whether HF_HUB_OFFLINE is set."""
    from huggingface_hub import constants

    return constants.HF_HUB_OFFLINE


def timeout() -> float:
    """Seconds to wait for an answer, as huggingface_hub is told by HF_HUB_DOWNLOAD_TIMEOUT."""
    from huggingface_hub import constants

    return constants.HF_HUB_DOWNLOAD_TIMEOUT


# --- calls that may fail


class Missing(Exception):
    """The repo does not hold the file."""


def persistently(
    what: str,
    meter: Meter,
    call: Callable[[], T],
    *,
    revision: str | None = None,
    missing: Callable[[Exception], bool] = lambda error: False,  # noqa: ARG005
) -> T:
    """What a call of huggingface_hub returns, tried again where that may help. Raises our own errors, unchained.

    missing: which of its errors say that a file is not there, for which Missing is raised
    """
    tries = Tries(what, meter)
    while True:
        problem: Exception
        try:
            return call()
        except progress.Cancelled:
            raise
        except Exception as error:
            problem = Missing() if missing(error) else explained(error, what, revision)
        if not isinstance(problem, Retry):
            raise problem
        tries.failed(problem)


def explained(error: Exception, what: str, revision: str | None = None) -> Exception:
    """One of our errors, or Retry, for what huggingface_hub or its HTTP client raised. Its own text is not repeated."""
    import httpx2
    from huggingface_hub import errors

    name = "/".join(what.split("/")[:2])
    while isinstance(error, errors.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__  # what kept it from asking
    if isinstance(error, (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError)):
        return Unreachable(
            f"{what} is not in the cache, and HF_HUB_OFFLINE is set: unset it, or read the model once where there is "
            "a network."
        )
    if isinstance(error, errors.HFValidationError):
        return NotFound(f"{what[:100]!r} is no name that a model on the Hub can have; check the spelling.")
    if isinstance(error, errors.HfHubHTTPError):
        status, headers = error.response.status_code, error.response.headers
        if isinstance(error, errors.GatedRepoError):
            return gated(name)
        if isinstance(error, errors.RevisionNotFoundError):
            return NotFound(f"{name} has no revision {revision!r} on {host()}; leave it out, or check its spelling.")
        return refused(status, what, headers.get("X-Error-Code"), headers.get("Retry-After"), error)
    if isinstance(error, httpx2.ProxyError):
        return Unreachable(f"{host()} cannot be reached through the proxy that is set up; check HTTPS_PROXY.")
    if isinstance(error, httpx2.TimeoutException):
        return Retry(f"no answer within {timeout():g} seconds")
    if isinstance(error, (httpx2.NetworkError, httpx2.ProtocolError)):
        cut = isinstance(error, (httpx2.ReadError, httpx2.RemoteProtocolError))
        return Retry("the connection was cut" if cut else "there is no connection, check the network")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return BadFile(f"The disk is full, so {what} cannot be kept: free some space, or set HF_HOME to another disk.")
    if isinstance(error, PermissionError):
        return BadFile(f"huggingface_hub's cache cannot be written ({error.filename}); set HF_HOME to another folder.")
    if isinstance(error, OSError) and "Consistency check" in str(error):
        return Retry("it came shorter than it is")
    return Unreachable(
        f"What {host()} answers when asked for {what} is no answer of a Hub (a page to log in to the network?); "
        "check the network, and HF_ENDPOINT."
    )


def gated(name: str) -> Gated:
    """The error for a repo that its owner shows to those who asked."""
    return Gated(
        f"{name} is gated: its owner wants to be asked first, so ask for access at {_shown()}/{name}, "
        "then log in here with `hf auth login` (or set HF_TOKEN)."
    )


def refused(
    status: int, what: str, code: str | None = None, after: str | None = None, error: Exception | None = None
) -> Exception:
    """One of our errors, or Retry, for a status of 400 and above."""
    from huggingface_hub import get_token
    from huggingface_hub.errors import RepositoryNotFoundError

    name = "/".join(what.split("/")[:2])
    if code == "GatedRepo":
        return gated(name)
    if status == 401 or code == "RepoNotFound" or isinstance(error, RepositoryNotFoundError):
        if status == 401 and not isinstance(error, RepositoryNotFoundError) and code != "RepoNotFound":
            return NotAllowed(f"{host()} does not accept the token that is set up here; log in with `hf auth login`.")
        if status == 401:
            return Private(
                f"{host()} shows no model {name} without a login: either it is private, then log in with "
                "`hf auth login`, or there is none, then check the spelling."
            )
        also = ", or whether your token may see it" if get_token() else ""
        return NotFound(f"{host()} has no model {name}; check the spelling of owner and name{also}.")
    if status == 403:
        return NotAllowed(f"{host()} refuses {what} (403); your token may lack the permission to read it.")
    if status in (408, 429) or status >= 500:
        why = "it has had too many requests (429)" if status == 429 else f"it answers with {status}"
        return Retry(why, _seconds(after))
    if status == 404:
        return NotFound(f"{host()} has no {what}; check the spelling.")
    return Unreachable(f"{what} could not be read from {host()}: it answers with {status}.")


def _shown() -> str:
    found = urlsplit(endpoint())
    return f"{found.scheme}://{found.hostname}" + (f":{found.port}" if found.port else "")


def _seconds(said: str | None) -> float | None:
    """Retry-After as seconds; a date is not understood."""
    with contextlib.suppress(TypeError, ValueError):
        return max(0.0, float(said))  # type: ignore[arg-type]
    return None
