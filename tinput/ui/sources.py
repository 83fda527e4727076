"""Which models the app offers, and which it may open.

The bundled six; folders inside the folders that the environment variable TINPUT_MODELS names; and, only while the
server listens on this machine alone, any folder whose path is typed. Hub ids will be one more kind in `offered`.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path

from tinput.errors import NotAllowed, NotFound
from tinput.twins import NAMES

__all__ = ["DEFAULT_MODEL", "allowed", "is_loopback", "listed", "offered", "serves_this_machine_only"]

DEFAULT_MODEL = NAMES[0]
_LISTED_LIMIT = 200  # folders shown in the list; one past it can still be typed


def roots() -> tuple[Path, ...]:
    """The folders named by TINPUT_MODELS (separated as PATH is), resolved; what does not exist is left out."""
    paths = (Path(part).expanduser() for part in os.environ.get("TINPUT_MODELS", "").split(os.pathsep) if part)
    return tuple(path.resolve() for path in paths if path.is_dir())


def listed() -> tuple[str, ...]:
    """Paths of the model folders (those with a config.json) in TINPUT_MODELS and one level below."""
    found: list[str] = []
    for root in roots():
        folders = (root, *sorted(path for path in root.iterdir() if path.is_dir()))
        found += [str(folder) for folder in folders if (folder / "config.json").is_file()]
    return tuple(found[:_LISTED_LIMIT])


def offered() -> tuple[str, ...]:
    """What the model list shows, first to last."""
    return (*NAMES, *listed())


def allowed(name: str, *, any_path: bool) -> str:
    """`name` as it may be opened. Raises NotAllowed for a path outside TINPUT_MODELS unless `any_path`,
    and NotFound for what is no path at all.

    Links and `..` are resolved before the comparison, so neither leads out of a root.
    """
    name = name.strip()
    if name in NAMES or f"tinput/{name}" in NAMES:
        return name
    try:
        path = Path(name).expanduser()
        resolved = path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a NUL, a loop of links, no such user
        raise NotFound(f"{name!r} is not a path of this machine: type the path of a model's folder.") from error
    if any_path:
        return str(path) if name.startswith("~") else name
    if any(resolved == root or root in resolved.parents for root in roots()):
        return str(resolved)
    raise NotAllowed(
        f"This server may not open {name!r}: it answers more than this machine. Choose a model from the list, "
        "or start the server with TINPUT_MODELS naming the folder that holds it."
    )


def is_loopback(address: str | None) -> bool:
    """Whether a host name or address is this machine's own."""
    if not address:
        return False
    host = address.strip().strip("[]").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serves_this_machine_only(address: str | None, mode: str | None, headers: Mapping[str, str]) -> bool:
    """Whether only this machine can reach the server.

    address: what Streamlit is told to listen on; None is every interface
    mode: how it was started; under another ASGI server (`asgi-...`) `address` says nothing
    headers: of the request; a forwarded one, or a host name not of this machine, came from elsewhere (a tunnel, a
        proxy, a name that someone pointed at 127.0.0.1)
    """
    if not is_loopback(address) or (mode or "").startswith("asgi"):
        return False
    present = {name.lower(): value for name, value in headers.items()}
    if any(name in present for name in ("x-forwarded-for", "x-forwarded-host", "forwarded", "x-real-ip")):
        return False
    host = present.get("host")
    return host is None or is_loopback(host.rsplit(":", 1)[0] if not host.endswith("]") else host)
