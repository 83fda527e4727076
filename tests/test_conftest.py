"""The guard that keeps the tests offline does keep them offline."""

import os
import socket

import pytest


def test_an_outside_address_is_refused_and_remembered(offline):
    with pytest.raises(OSError, match="offline"):
        socket.create_connection(("example.org", 443), timeout=1)
    with pytest.raises(OSError, match="offline"), socket.socket() as outside:
        outside.connect(("192.0.2.1", 80))
    assert offline == ["example.org", "192.0.2.1"]
    offline.clear()


def test_loopback_is_open(offline):
    with socket.create_server(("127.0.0.1", 0)) as here, socket.create_connection(here.getsockname(), timeout=5):
        pass
    assert offline == []


def test_the_hub_client_is_offline():
    from huggingface_hub import constants

    assert constants.HF_HUB_OFFLINE
    assert os.environ["HF_HOME"] in constants.HF_HUB_CACHE
