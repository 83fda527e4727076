"""Paths may be typed only where this machine alone can reach the server."""

import pytest

from tinput.models import files
from tinput.twins import NAMES
from tinput.ui import sources


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.8.9.1", "::1", "[::1]", "app.localhost"])
def test_loopback(host):
    assert sources.is_loopback(host)


@pytest.mark.parametrize("host", [None, "", "0.0.0.0", "::", "10.1.1.4", "localhost.example.org", "127.0.0.1.nip.io"])
def test_not_loopback(host):
    assert not sources.is_loopback(host)


@pytest.mark.parametrize(
    ("address", "mode", "headers", "alone"),
    [
        ("localhost", "starlette-app", {"Host": "localhost:8501"}, True),
        ("127.0.0.1", "starlette-app-direct", {"Host": "127.0.0.1:8501"}, True),
        ("::1", None, {"Host": "[::1]:8501"}, True),
        ("localhost", None, {}, True),  # no request: a test
        (None, "starlette-app", {"Host": "localhost:8501"}, False),  # every interface
        ("0.0.0.0", "starlette-app", {"Host": "localhost:8501"}, False),
        ("localhost", "asgi-server", {"Host": "localhost:8501"}, False),  # uvicorn listens where it was told to
        ("localhost", "starlette-app", {"Host": "evil.example.org"}, False),  # a name pointed at 127.0.0.1
        ("localhost", "starlette-app", {"Host": "localhost:8501", "X-Forwarded-For": "10.0.0.8"}, False),
        ("localhost", "starlette-app", {"host": "localhost", "forwarded": "for=10.0.0.8"}, False),
    ],
)
def test_who_can_reach_the_server(address, mode, headers, alone):
    assert sources.serves_this_machine_only(address, mode, headers) is alone


def test_what_is_offered(tmp_path, monkeypatch):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "no model").mkdir()
    monkeypatch.setenv("TINPUT_MODELS", str(tmp_path))
    assert sources.offered() == (*NAMES, str(tmp_path / "one"))
    assert sources.offered("somewhere/else")[-1] == "somewhere/else"
    assert sources.offered(NAMES[2]) == sources.offered()


def test_the_models_to_start_from_have_the_schemes_that_their_architectures_are_known_for():
    assert dict(sources.known()) == {
        "google-bert/bert-base-uncased": ("learned",),
        "FacebookAI/roberta-base": ("learned",),
        "openai-community/gpt2": ("learned",),
        "facebook/opt-350m": ("learned",),
        "Helsinki-NLP/opus-mt-en-de": ("sinusoidal",),
        "google-t5/t5-small": ("relative_bias",),
        "bigscience/bloom-560m": ("alibi",),
        "mosaicml/mpt-7b": ("alibi",),
    } | dict.fromkeys(list(sources.KNOWN)[8:], ("rope",))
    assert all(files.HUB_ID.fullmatch(name) and "/" in name for name in sources.KNOWN)
    assert set(sources.GATED) <= set(sources.KNOWN)
    assert all(name in sources.GATED for name in sources.KNOWN if name.startswith(("meta-llama/", "google/gemma-")))
