"""Which models the app offers, and whether a visitor may type a path.

The bundled six; folders inside the folders that the environment variable TINPUT_MODELS names; any model on the Hub by
its id, of which some are named to start from; and, only while this machine alone can reach the server, any folder whose
path is typed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from tinput.models import files
from tinput.twins import NAMES

__all__ = [
    "DEFAULT_MODEL",
    "GATED",
    "KNOWN",
    "SECOND_MODEL",
    "is_loopback",
    "known",
    "offered",
    "serves_this_machine_only",
]

DEFAULT_MODEL, SECOND_MODEL = NAMES[0], NAMES[2]  # what the app opens with, and what it is compared with at first
KNOWN = {  # ids on the Hub to start from, and the architecture of each
    "google-bert/bert-base-uncased": "bert",
    "FacebookAI/roberta-base": "roberta",
    "openai-community/gpt2": "gpt2",
    "facebook/opt-350m": "opt",
    "Helsinki-NLP/opus-mt-en-de": "marian",
    "google-t5/t5-small": "t5",
    "bigscience/bloom-560m": "bloom",
    "mosaicml/mpt-7b": "mpt",
    "tiiuae/falcon-7b": "falcon",
    "meta-llama/Llama-3.1-405B": "llama",
    "mistralai/Mistral-7B-v0.1": "mistral",
    "Qwen/Qwen3-0.6B": "qwen3",
    "google/gemma-3-1b-it": "gemma3_text",
    "microsoft/Phi-3-mini-4k-instruct": "phi3",
    "HuggingFaceTB/SmolLM3-3B": "smollm3",
    "answerdotai/ModernBERT-base": "modernbert",
    "openai/gpt-oss-20b": "gpt_oss",
    "deepseek-ai/DeepSeek-V3": "deepseek_v3",
}
GATED = ("meta-llama/Llama-3.1-405B", "google/gemma-3-1b-it")  # of them: their owners want to be asked first
_FORWARDED = ("x-forwarded-for", "x-forwarded-host", "forwarded", "x-real-ip")


def offered(typed: str | None = None) -> tuple[str, ...]:
    """What the model list shows, first to last: bundled names, paths of the server's own folders, what was typed."""
    known = (*NAMES, *map(str, files.listed()))
    return known if not typed or typed in known else (*known, typed)


def known() -> list[tuple[str, tuple[str, ...]]]:
    """(id on the Hub, schemes of its architecture as the atlas recorded them) of the models to start from."""
    from tinput import atlas

    schemes = {row["model_type"]: tuple(row.get("schemes", ())) for row in atlas.load()[1]}
    return [(name, schemes.get(kind, ())) for name, kind in KNOWN.items()]


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
