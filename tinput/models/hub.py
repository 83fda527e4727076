"""A model on the Hub at one commit: its small files, through huggingface_hub and its cache; never its weights.

The commit is asked for once and pinned; whatever is read later is read at this commit. HF_HOME, HF_ENDPOINT,
HF_TOKEN and HF_HUB_OFFLINE work as they do everywhere, since huggingface_hub itself does the reading. Where the Hub
cannot be reached, what is in its cache serves.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinput.errors import BadFile, BadModel, Gated, NotFound, Unreachable
from tinput.models import progress
from tinput.models.asking import Missing, endpoint, host, offline, persistently, timeout
from tinput.models.progress import Meter
from tinput.models.store import shared

__all__ = ["Hub"]

COMMIT = re.compile(r"[0-9a-f]{40}")
CONFIG = "config.json"


@dataclass(frozen=True)
class Hub:
    """name: "owner/name"; commit: 40 hex digits; token: None for the user's own, False for none
    files: names of the files in the repo, or None where no list is to be had; folder: where the small ones are kept
    """

    name: str
    commit: str
    token: bool | None
    files: tuple[str, ...] | None
    folder: Path

    @classmethod
    def open(cls, name: str, revision: str | None = None, token: bool | None = None) -> Hub:
        """Asks for the commit (one request, none offline) and reads config.json.

        Raises NotFound, Private, Gated, NotAllowed (a token that is not valid), Unreachable, BadFile (no config.json).
        """
        meter = Meter(f"{name}: {CONFIG}")
        commit, files, told = progress.run(meter, [lambda: _resolve(name, revision, token, meter)])[0]
        hub = cls(name, commit, token, _listed(name, commit, files), _folder(name, commit))
        files = hub.files
        if files is not None and CONFIG not in files:
            raise BadFile(hub.no_config())
        try:
            hub.download([CONFIG], meter)
        except Gated as error:
            raise Gated(str(error), told) from None
        return hub

    def __str__(self) -> str:
        return self.name

    @property
    def key(self) -> str:
        """What stands for these contents in a cache that several users' models share."""
        return f"{endpoint()} {self.commit}"  # a repo may have two names

    def has(self, file: str) -> bool | None:
        """Whether the repo holds a file; None where that is not known."""
        if (self.folder / file).is_file():
            return True
        return None if self.files is None else file in self.files

    def download(self, files: Iterable[str], meter: Meter | None = None) -> list[Path]:
        """Small files into huggingface_hub's cache, at this commit; those that the repo does not hold are left out."""
        wanted = [file for file in files if self.has(file) is not False]
        step = meter or Meter(f"{self.name}: {', '.join(wanted[:2])}{' …' if len(wanted) > 2 else ''}")
        missing = [file for file in wanted if not (self.folder / file).is_file()]
        progress.run(step, [lambda file=file: self._download(file, step) for file in missing])
        return [path for file in wanted if (path := self.folder / file).is_file()]

    def _download(self, file: str, meter: Meter) -> None:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

        try:
            persistently(
                self.name,
                meter,
                lambda: hf_hub_download(
                    self.name,
                    file,
                    revision=self.commit,
                    token=self.token,
                    tqdm_class=_bar(meter),  # type: ignore[arg-type]
                ),
                file=file,
                missing=lambda error: (
                    isinstance(error, EntryNotFoundError)
                    and not (isinstance(error, LocalEntryNotFoundError) and not (offline() and self.files is None))
                ),
            )
        except Missing:
            if file == CONFIG:
                raise BadFile(self.no_config()) from None

    def no_config(self) -> str:
        """The sentence for a repo without config.json."""
        what = f"{self.name} has no {CONFIG}, so it is no model that transformers can describe"
        if any(file.endswith(".gguf") for file in self.files or ()):
            return f"{what} (it holds GGUF files: look for the model that they were made from)."
        if "adapter_config.json" in (self.files or ()):
            return f"{what} (it is an adapter: open the model that it adapts)."
        return f"{what}; choose another."

    def sizes(self) -> dict[str, int]:
        """Bytes of each file, by one request; empty where that cannot be had."""
        from huggingface_hub import HfApi

        meter = Meter(f"{self.name}: sizes of its files")
        ask = lambda: HfApi().model_info(  # noqa: E731 - a call to make again
            self.name, revision=self.commit, files_metadata=True, token=self.token, timeout=timeout()
        )
        try:
            info = progress.run(meter, [lambda: persistently(self.name, meter, ask)])[0]
        except BadModel:
            return {}
        return {entry.rfilename: entry.size for entry in info.siblings or () if entry.size is not None}

    def converted(self) -> Hub | None:
        """The same repo at the commit of its conversion to safetensors, if the Hub's own bot has offered one."""
        from huggingface_hub import HfApi

        meter = Meter(f"{self.name}: looking for a conversion to safetensors")

        def ask() -> str | None:
            found = HfApi().get_repo_discussions(
                self.name, author=CONVERTER, discussion_type="pull_request", token=self.token
            )
            made = (one for one in found if one.author == CONVERTER and "safetensors" in one.title.lower())
            return next((one.git_reference for one in made if one.git_reference), None)

        store, key = shared(), f"{self.key} converted"
        kept = store.get(key, [(0, 40)]).get((0, 40))
        try:
            if kept is None:
                ref = progress.run(meter, [lambda: persistently(self.name, meter, ask)])[0]
                if ref is None:
                    return None
                commit, files, _ = progress.run(meter, [lambda: _resolve(self.name, ref, self.token, meter)])[0]
                store.put(key, [(0, commit.encode())])
            else:
                commit, files = kept.decode(), None
        except BadModel:
            return None
        return Hub(self.name, commit, self.token, _listed(self.name, commit, files), _folder(self.name, commit))


CONVERTER = "SFconvertbot"  # the account whose pull requests transformers takes too


def _cache(name: str) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE).expanduser() / f"models--{name.replace('/', '--')}"


def _folder(name: str, commit: str) -> Path:
    return _cache(name) / "snapshots" / commit


# --- the commit


def _resolve(
    name: str, revision: str | None, token: bool | None, meter: Meter
) -> tuple[str, tuple[str, ...] | None, dict[str, Any] | None]:
    """The commit; names of the files, and what everybody is told of the configuration, if they are to be had."""
    from huggingface_hub import HfApi, constants

    ref = revision or constants.DEFAULT_REVISION
    if token is not False and COMMIT.fullmatch(ref) and (_folder(name, ref) / CONFIG).is_file():
        return ref, None, None
    known = _known(name, ref)
    if offline():
        if known is None:
            raise Unreachable(
                f"{name} is not in huggingface_hub's cache, and HF_HUB_OFFLINE is set: unset it, "
                f"or download the model first where there is a network."
            )
        return known, None, None
    parts: Any = ["sha", "siblings", "gated", "config"]
    ask = lambda: HfApi().model_info(name, revision=ref, expand=parts, token=token, timeout=timeout())  # noqa: E731
    try:
        info = persistently(name, meter, ask, revision=revision)
    except Unreachable:
        if known is None:
            raise
        return known, None, None  # no network today: what was read last time
    except Missing:
        raise NotFound(f"There is no model {name} on {host()}; check the spelling of owner and name.") from None
    commit = str(info.sha or "")
    if not COMMIT.fullmatch(commit):
        raise Unreachable(f"At which commit {name} is, {host()} does not say; check HF_ENDPOINT.")
    if info.gated and token is False:
        raise Gated(
            f"{name} is shown only to those whom its owner lets in, and this server shows its visitors public models "
            "alone; open it on your own machine.",
            info.config,
        )
    _remember(name, ref, commit)
    files = None if info.siblings is None else tuple(entry.rfilename for entry in info.siblings)
    return commit, files, info.config


def _listed(name: str, commit: str, files: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The names of a repo's files, as just heard, or as heard when it was opened before."""
    key, store = f"{endpoint()} {name} {commit} files", shared()
    if files is not None:
        raw = json.dumps(files).encode()
        if not store.get(key, [(0, 8)]):
            store.put(key, [(0, len(raw).to_bytes(8, "little")), (8, raw)])
        return files
    for length in store.get(key, [(0, 8)]).values():
        end = 8 + int.from_bytes(length, "little")
        for raw in store.get(key, [(8, end)]).values():
            return tuple(json.loads(raw))
    if offline():  # all that there is
        return tuple(path.name for path in _folder(name, commit).glob("*"))
    return None


def _known(name: str, ref: str) -> str | None:
    """The commit that a branch or tag had when it was last asked for."""
    if COMMIT.fullmatch(ref):
        return ref
    if ".." in Path(ref).parts or Path(ref).is_absolute():
        return None
    with contextlib.suppress(OSError, ValueError):
        commit = (_cache(name) / "refs" / ref).read_text().strip()
        return commit if COMMIT.fullmatch(commit) else None
    return None


def _remember(name: str, ref: str, commit: str) -> None:
    """Notes a branch's commit where huggingface_hub notes it, for the time without a network."""
    if ref == commit or ".." in Path(ref).parts or Path(ref).is_absolute() or _known(name, ref) == commit:
        return
    path = _cache(name) / "refs" / ref
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")
        new.write_text(commit)
        os.replace(new, path)


def _bar(meter: Meter) -> type:
    """A class in tqdm's place that tells the meter and prints nothing."""

    class Bar:
        def __init__(self, *_: Any, total: float | None = None, initial: int = 0, **__: Any):
            self.n, self.total = initial, total
            meter.expect(int(total or 0))

        def update(self, n: float | None = 1) -> None:
            meter.add(int(n or 0))

        def update_transfer(self, _: float | None = 1) -> None:
            """What xet counts as it comes over the network, and again, by `update`, as it is written."""
            meter.alive()

        def __enter__(self):
            return self

        def __exit__(self, *_: Any) -> None:
            pass

        def __getattr__(self, name: str) -> Any:  # all that makes a bar look well
            return lambda *_, **__: None

    return Bar
