"""Which models the app offers, and whether a visitor may type a path.

The bundled six; folders inside the folders that the environment variable TINPUT_MODELS names; and, only while this
machine alone can reach the server, any folder whose path is typed. Hub ids will be one more kind of typed name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from tinput.models import files
from tinput.twins import NAMES

__all__ = ["DEFAULT_MODEL", "SECOND_MODEL", "is_loopback", "offered", "serves_this_machine_only"]

DEFAULT_MODEL, SECOND_MODEL = NAMES[0], NAMES[2]  # what the app opens with, and what it is compared with at first
_FORWARDED = ("x-forwarded-for", "x-forwarded-host", "forwarded", "x-real-ip")


def offered(typed: str | None = None) -> tuple[str, ...]:
    """What the model list shows, first to last: bundled names, paths of the server's own folders, what was typed."""
    known = (*NAMES, *map(str, files.listed()))
    return known if not typed or typed in known else (*known, typed)


def is_loopback(host: str | None) -> bool:
    """Whether a host name or address is this machine's own."""
    if not host:
        return False
    host = host.strip().strip("[]").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serves_this_machine_only(address: str | None, mode: str | None, headers: Mapping[str, str]) -> bool:
    """Whether only this machine can reach the server.

    address: what Streamlit is told to listen on; None is every interface
    mode: how Streamlit was started; under another ASGI server ("asgi-...") `address` says nothing
    headers: of the request. A forwarded one, or one for a host that is not this machine, came through a tunnel, a
        proxy, or a name that somebody pointed at 127.0.0.1
    """
    if not is_loopback(address) or (mode or "").startswith("asgi"):
        return False
    present = {name.lower(): value for name, value in headers.items()}
    if any(name in present for name in _FORWARDED):
        return False
    host = present.get("host")
    return host is None or is_loopback(host if host.endswith("]") else host.rsplit(":", 1)[0])
