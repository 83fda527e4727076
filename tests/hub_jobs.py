"""What a client's process does for the tests of the Hub, in tinput's public words. `tests.hub.client` runs these."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

_open: dict[str, Any] = {}  # models that a later job goes on with
_waits: list[float] = []
HURRY = 0.002  # of a wait's seconds, once in a hurry
_pace = [HURRY]

TEXT = "the cat sat on the mat"


def opened(name: str, revision: str | None = None, **options: Any) -> dict[str, Any]:
    """Opens a model and keeps it for `traced`; what can be said of it without a weight."""
    import tinput

    model = _open[name] = tinput.open_model(name, revision, **options)
    return {"scheme": model.scheme, "schemes": model.schemes, "reason": model.reason, "revision": model.revision}


def traced(name: str, text: str | None = TEXT, **options: Any) -> dict[str, Any]:
    """All that a trace of an open model holds. Arrays are (dtype, shape, bytes): equal if they are bit for bit."""
    trace = _open[name].trace(text, **options)
    arrays = trace.arrays()
    for side, effects in (("recorded", [e.effect for e in trace.effects]), ("textbook", trace.textbook or ())):
        for place, effect in enumerate(effects):
            if hasattr(getattr(effect, "scores", None), "tensor"):  # a function of its range: all of it
                arrays[f"{side}_{place}_scores"] = effect.scores.tensor().float().numpy()
    facts = trace.provenance()
    del facts["model"], facts["revision"]  # the two in which a folder and a repo differ
    facts |= {"ok": trace.agreement.ok, "attention_reason": trace.attention_reason}
    return {"arrays": {name: (str(a.dtype), a.shape, a.tobytes()) for name, a in arrays.items()}, "facts": facts}


def seen(name: str, text: str | None = TEXT, *, revision: str | None = None, **options: Any) -> dict[str, Any]:
    """`opened`, then `traced`, as one."""
    return opened(name, revision) | traced(name, text, **options)


def anonymously(job: str, *args: Any, **options: Any) -> Any:
    """A job without a token."""
    token = os.environ.pop("HF_TOKEN", None)
    try:
        return globals()[job](*args, **options)
    finally:
        if token is not None:
            os.environ["HF_TOKEN"] = token


def impatient(timeout: float, job: str, *args: Any, **options: Any) -> Any:
    """A job with so many seconds of patience for an answer."""
    from huggingface_hub import constants

    before = constants.HF_HUB_DOWNLOAD_TIMEOUT, constants.HF_HUB_ETAG_TIMEOUT
    constants.HF_HUB_DOWNLOAD_TIMEOUT = constants.HF_HUB_ETAG_TIMEOUT = timeout  # type: ignore[assignment]
    try:
        return globals()[job](*args, **options)
    finally:
        constants.HF_HUB_DOWNLOAD_TIMEOUT, constants.HF_HUB_ETAG_TIMEOUT = before


def without_room(job: str, *args: Any, **options: Any) -> Any:
    """A job for which huggingface_hub finds the disk full."""
    import errno

    from huggingface_hub import file_download

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before, file_download.http_get = file_download.http_get, full
    try:
        return globals()[job](*args, **options)
    finally:
        file_download.http_get = before


def hurry() -> None:
    """From now on waits between tries are noted, and as good as over. Also imports all that a trace needs."""
    import time

    from tinput.models.progress import Meter

    wait, rest = Meter.sleep, time.sleep

    def sleep(self: Meter, seconds: float) -> None:
        _waits.append(seconds)
        wait(self, seconds * _pace[0])

    def slept(seconds: float) -> None:  # huggingface_hub's own
        _waits.append(seconds)
        rest(seconds * _pace[0])

    Meter.sleep, time.sleep = sleep, slept
    seen("tinput/rope")


def patiently(job: str, *args: Any, **options: Any) -> tuple[Any, float]:
    """A job whose waits are as long as they are, and the seconds that it took."""
    import time

    _pace[0], start = 1.0, time.monotonic()
    try:
        return globals()[job](*args, **options), time.monotonic() - start
    finally:
        _pace[0] = HURRY


def with_cache(folder: str, limit: str | None, job: str, *args: Any, **options: Any) -> Any:
    """A job whose cache of ranges is in another folder, with another limit."""
    from huggingface_hub import constants

    before, said = constants.HF_ASSETS_CACHE, os.environ.pop("TINPUT_CACHE_BYTES", None)
    constants.HF_ASSETS_CACHE = folder
    if limit is not None:
        os.environ["TINPUT_CACHE_BYTES"] = limit
    try:
        return globals()[job](*args, **options)
    finally:
        constants.HF_ASSETS_CACHE = before
        os.environ.pop("TINPUT_CACHE_BYTES", None)
        if said is not None:
            os.environ["TINPUT_CACHE_BYTES"] = said


def with_own_client(job: str, *args: Any, **options: Any) -> Any:
    """A job for which a user's own client sends the token with everything, as behind some gateways."""
    import httpx2
    from huggingface_hub import set_client_factory
    from huggingface_hub.utils import _http

    headers = {"Authorization": f"Bearer {os.environ['HF_TOKEN']}"}
    set_client_factory(lambda: httpx2.Client(headers=headers, follow_redirects=True, timeout=None))
    try:
        return globals()[job](*args, **options)
    finally:
        set_client_factory(_http.default_client_factory)


def waited() -> list[float]:
    """The waits since the last call, in seconds as they would have been."""
    found = list(_waits)
    _waits.clear()
    return found


def files_below(folder: str) -> dict[str, int]:
    """Bytes on disk of the files below a folder, links not followed."""
    root = Path(folder)
    return {str(p.relative_to(root)): p.lstat().st_size for p in root.rglob("*") if p.is_file() and not p.is_symlink()}


def looked_through(name: str) -> str:
    """The repr of everything that an open model holds, as far as attributes go, and its pickle and trace."""
    import gc
    import types

    import tinput

    model = tinput.open_model(name)
    trace = model.trace(TEXT)
    held, waiting, shown = set(), [model, trace], []
    while waiting and len(held) < 20_000:
        one = waiting.pop()
        if id(one) in held or isinstance(one, (type, types.ModuleType, types.FunctionType, types.FrameType)):
            continue
        held.add(id(one))
        if type(one).__module__.startswith("tinput"):
            shown.append(repr(one))
        if isinstance(one, (str, bytes)):
            shown.append(repr(one))
        if type(one).__module__.startswith(("tinput", "builtins", "pathlib")):
            waiting += gc.get_referents(one)
    return "\n".join(shown)


def told(name: str, job: str = "seen", **options: Any) -> tuple[Any, list[tuple[int, int, str]]]:
    """A job, and what a listener is told meanwhile: (bytes here, bytes wanted, step)."""
    from tinput.models import progress

    heard: list[tuple[int, int, str]] = []
    with progress.to(lambda *said: heard.append(said)):
        return globals()[job](name, **options), heard


def stopped(name: str, after: int, **options: Any) -> str:
    """A trace that its listener stops once so many bytes of a step are here; the name of the error that came out."""
    from tinput.models import progress

    class Enough(Exception):
        pass

    def listen(done: int, total: int, step: str) -> None:  # noqa: ARG001
        if done > after:
            raise Enough(step)

    try:
        with progress.to(listen):
            seen(name, **options)
    except Enough as error:
        return f"Enough: {error}"
    return "it ended by itself"


def stopped_after(name: str, seconds: float) -> str:
    """A trace that its listener stops after some time."""
    import time

    from tinput.models import progress

    class Enough(Exception):
        pass

    until = time.monotonic() + seconds

    def listen(done: int, total: int, step: str) -> None:  # noqa: ARG001
        if time.monotonic() > until:
            raise Enough(step)

    try:
        with progress.to(listen):
            seen(name)
    except Enough as error:
        return f"Enough: {error}"
    return "it ended by itself"


def at_once(name: str, threads: int, **options: Any) -> list[dict[str, Any]]:
    """As many threads trace one model that nobody has traced yet."""
    from concurrent.futures import ThreadPoolExecutor

    opened(name)
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda _: traced(name, **options), range(threads)))


def here(folder: str, job: str, *args: Any, **options: Any) -> Any:
    """A job with another working folder."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        return globals()[job](*args, **options)
    finally:
        os.chdir(before)


def looked_at(page: str, press: str = "", **link: str) -> dict[str, Any]:
    """A page of the app as a link shows it, after a press on the button whose key is given: words, buttons, pictures.

    buttons: key -> label; heats: the heatmaps of the first figure; code: the Python shown; paper: the page as one file
    """
    from tests import app
    from tinput.ui import onefile, takeaway

    at = app.show(page, **link)
    if press:
        at.button(key=press).click().run()
        assert not at.exception, at.exception[0].stack_trace
    figures = app.figures(at)
    buttons = {button.key: button.label for button in at.main.button}
    heats = app.heats(figures[0]) if figures else []
    paper = onefile.html(at.session_state[takeaway.KEY], "today").decode().split("</style>")[-1].split("<script")[0]
    return {"words": app.words(at), "buttons": buttons, "heats": heats, "code": app.code(at), "paper": paper}


def executed(code: str) -> list[Any]:
    """The heatmaps of the figure that a page's Python makes."""
    import numpy as np

    from tests.pages import code_shown

    return [np.asarray(trace.z, float) for trace in code_shown.run(code).data if trace.type == "heatmap"]
