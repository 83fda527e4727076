"""Asking the Hub for something until it answers, and what to say when it does not.

Errors are told in sentences of our own, with no chain behind them: those of huggingface_hub and its HTTP client carry
the request, with the token in its headers and signatures in its addresses.
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from threading import Thread
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tinput.errors import BadFile, Gated, NotAllowed, NotFound, Private, TinputError, Unreachable
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
WAITS = (0.5, 1.0, 2.0)  # seconds before each further try, unless the server says to wait longer
LONGEST_WAIT = 30.0  # of what a server may say: a person waits
LONGEST_SAID = 86_400.0  # seconds; a longer wait that a server asks for is not repeated to anybody
STILL = 3  # times the patience for one answer, in which nothing comes: then huggingface_hub's own tries are given up
EVERY = 0.1  # seconds between two looks at a call that is waited for

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
        after = retry.after or 0.0
        if self._failures >= TRIES or after > LONGEST_WAIT:
            later = f"in {after:,.0f} seconds" if LONGEST_WAIT < after <= LONGEST_SAID else "later"
            raise Unreachable(f"{self.what} could not be read from {host()}: {retry.why}; try again {later}.")
        self._meter.sleep(max(WAITS[self._failures - 1], after))


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
    name: str,
    meter: Meter,
    call: Callable[[], T],
    *,
    file: str = "",
    revision: str | None = None,
    missing: Callable[[Exception], bool] = lambda error: False,  # noqa: ARG005
) -> T:
    """What a call of huggingface_hub returns, tried again where that may help. Raises our own errors, unchained.

    name: of the model; file: of its file that is asked for
    missing: which of its errors say that a file is not there, for which Missing is raised
    """
    tries = Tries(f"{name}/{file}" if file else name, meter)
    while True:
        problem: Exception
        try:
            return _in_time(call, tries.what, meter)
        except (progress.Cancelled, TinputError):
            raise
        except Exception as error:
            problem = Missing() if missing(error) else explained(error, name, file, revision)
        if not isinstance(problem, Retry):
            raise problem
        tries.failed(problem)


def _in_time(call: Callable[[], T], what: str, meter: Meter) -> T:
    """`call()`, which is left behind in a thread of its own when the read is stopped, or nothing comes for too long.

    huggingface_hub tries again by itself, for minutes where a server hangs, and for as long as a server asks.
    """
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # it is raised again where the call is waited for
            future.set_exception(error)

    Thread(target=work, name="tinput-asking", daemon=True).start()  # daemon: the end of the program waits for none
    reached, since, patience = (0, 0), time.monotonic(), STILL * timeout()
    while not wait([future], EVERY).done:
        meter.add(0)  # raises Cancelled
        if (now := (meter.done, meter.signs)) != reached:
            reached, since = now, time.monotonic()
        if time.monotonic() - since > patience:
            raise Unreachable(
                f"{what} could not be read from {host()}: nothing came for {patience:,.3g} seconds; check the network "
                "(where it lets only some hosts through, set HF_HUB_DISABLE_XET=1), and try again later."
            )
    return future.result()


def explained(error: Exception, name: str, file: str = "", revision: str | None = None) -> Exception:
    """One of our errors, or Retry, for what huggingface_hub or its HTTP client raised. Its own text is not repeated.

    name: of the model; file: of its file that was asked for; revision: as it was asked for
    """
    import httpx2
    from huggingface_hub import errors

    what = f"{name}/{file}" if file else name
    while isinstance(error, errors.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__  # what kept it from asking
    if isinstance(error, (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError)):
        return Unreachable(
            f"{what} is not in the cache, and HF_HUB_OFFLINE is set: unset it, or read the model once where there is "
            "a network."
        )
    if isinstance(error, errors.HFValidationError):
        return NotFound(f"{name[:100]!r} is no name that a model on the Hub can have; check the spelling.")
    if isinstance(error, errors.HfHubHTTPError):
        status, headers = error.response.status_code, error.response.headers
        if isinstance(error, errors.GatedRepoError):
            return gated(name)
        if isinstance(error, errors.RevisionNotFoundError):
            return NotFound(f"{name} has no revision {revision!r} on {host()}; leave it out, or check its spelling.")
        return refused(status, name, file, headers, error)
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


def refused(status: int, name: str, file: str, headers: Mapping[str, str], error: Exception | None = None) -> Exception:
    """One of our errors, or Retry, for a status of 400 and above, by the headers that came with it."""
    from huggingface_hub import get_token
    from huggingface_hub.errors import RepositoryNotFoundError

    what, code = f"{name}/{file}" if file else name, headers.get("X-Error-Code")
    if code == "GatedRepo":
        return gated(name)
    if status == 401 or code == "RepoNotFound" or isinstance(error, RepositoryNotFoundError):
        if status == 401 and not isinstance(error, RepositoryNotFoundError) and code != "RepoNotFound":
            return NotAllowed(f"The token that is set up is not accepted by {host()}; log in with `hf auth login`.")
        if status == 401:
            return Private(
                f"There is no model {name} on {host()} that is shown without a login: either it is private, then log "
                "in with `hf auth login`, or there is none, then check the spelling."
            )
        also = ", or whether your token may see it" if get_token() else ""
        return NotFound(f"There is no model {name} on {host()}; check the spelling of owner and name{also}.")
    if status == 403:
        return NotAllowed(f"{what} is refused by {host()} (403); your token may lack the permission to read it.")
    if status in (408, 429) or status >= 500:
        why = "it has had too many requests (429)" if status == 429 else f"it answers with {status}"
        return Retry(why, _wanted_wait(status, headers))
    if status == 404:
        return NotFound(f"There is no {what} on {host()}; check the spelling.")
    return Unreachable(f"{what} could not be read from {host()}: it answers with {status}; check HF_ENDPOINT.")


def _shown() -> str:
    found = urlsplit(endpoint())
    return f"{found.scheme}://{found.hostname}" + (f":{found.port}" if found.port else "")


def _wanted_wait(status: int, headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait: by Retry-After, or by the Hub's own header on its limits."""
    from huggingface_hub.utils import parse_ratelimit_headers

    said = _seconds(headers.get("Retry-After"))
    limit: Any = parse_ratelimit_headers(headers) if status == 429 and said is None else None
    return float(limit.reset_in_seconds) if limit is not None and not limit.remaining else said


def _seconds(said: str | None) -> float | None:
    """Retry-After, a number of seconds or a date (RFC 9110, section 10.2.3), in seconds from now; None for all else."""
    if said is None:
        return None
    if re.fullmatch(r"[0-9]+", said.strip()):
        return float(said)
    try:
        date = parsedate_to_datetime(said)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return max(0.0, ((date if date.tzinfo else date.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds())
