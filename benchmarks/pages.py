"""What a page costs: the server's time for a rerun, and the bytes that its first sight sends to the browser.

A real server, and a client that speaks the browser's protocol, so that no drawing is in the time: from the rerun's
request to the message that it has finished, with all messages received. Bytes are those of the first run's messages,
before compression; the app's own code and styles, which a browser keeps, are not among them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from urllib.parse import urlencode

from benchmarks.table import Row
from tests.serve import ROOT, server

RERUNS = 7
AIMS = {64: 150, 512: 400}  # tokens: milliseconds
BYTES = 1_000_000
FIRST_PAGE = "pipeline"  # its address is the app's own, without a page's name
WORDS = "the cat sat on the mat while a quiet rain fell over every roof in town and nobody said why it had to end "


def rows() -> Iterator[Row]:
    """The table's rows: each page at 64 and at 512 tokens, with the bundled model whose scheme it is about."""
    pages = sorted(path.stem for path in (ROOT / "pages").glob("*.py"))
    with server() as url:
        for page in pages:
            model = _model(page)
            for tokens, aim in AIMS.items():
                with _Visit(url, page, model, _text(model, tokens)) as visit:
                    reruns = [visit.rerun() for _ in range(RERUNS)]
                    what = f"{page}, {tokens} tokens"
                    yield Row(f"{what}: rerun", 1e3 * statistics.median(reruns), aim, "the aim", "ms", 1.0)
                    yield Row(f"{what}: first sight", visit.bytes / 1e3, BYTES / 1e3, "the aim", "kB", 1.0)


def _model(page: str) -> str:
    from tinput.twins import NAMES

    return next((name for name in NAMES if name.split("/")[-1] == page), "tinput/rope")


def _text(model: str, tokens: int) -> str:
    """A text of exactly so many tokens, or one more where no text has that many."""
    import tinput

    opened = tinput.open_model(model)
    text = WORDS * (tokens // 16 + 1)
    low, high = 1, len(text)
    while low < high:  # the shortest start of the text with at least that many tokens
        middle = (low + high) // 2
        if len(opened.tokenize(text[:middle]).ids) < tokens:
            low = middle + 1
        else:
            high = middle
    return text[:low]


class _Visit:
    """A browser's session on one page, without the browser. `bytes` is the size of the first run's messages."""

    def __init__(self, url: str, page: str, model: str, text: str, **controls: str):
        self._address = url.replace("http", "ws", 1) + "/_stcore/stream"
        self._page = "" if page == FIRST_PAGE else page
        self._query = urlencode({"text": text, "model": model, **controls})
        self._hash, self._kept = "", []

    def __enter__(self):
        from websockets.sync.client import connect

        self._socket = connect(self._address, subprotocols=["streamlit"], max_size=None)  # pyright: ignore[reportArgumentType]
        self.bytes = self._run()[1]
        return self

    def __exit__(self, *_):
        self._socket.close()

    def rerun(self) -> float:
        """Seconds from the request to the last message."""
        return self._run()[0]

    def _run(self) -> tuple[float, int]:
        from streamlit.proto.BackMsg_pb2 import BackMsg
        from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

        request = BackMsg()
        request.rerun_script.query_string = self._query
        request.rerun_script.page_script_hash = self._hash
        request.rerun_script.page_name = "" if self._hash else self._page
        request.rerun_script.cached_message_hashes.extend(self._kept)  # what the browser still has is not sent again
        started, size, elements = time.perf_counter(), 0, 0
        self._socket.send(request.SerializeToString())
        while True:
            frame = self._socket.recv(timeout=120, decode=False)
            elapsed, size = time.perf_counter() - started, size + len(frame)
            message = ForwardMsg.FromString(frame)
            kind = message.WhichOneof("type")
            if message.metadata.cacheable:
                self._kept.append(message.hash)
            if kind == "new_session":
                self._hash = message.new_session.page_script_hash
            elif kind == "page_not_found":
                raise RuntimeError(f"the app has no page {self._page!r}")
            elif kind == "delta":
                elements += 1
                if message.delta.new_element.WhichOneof("type") == "exception":
                    raise RuntimeError(f"{self._page}: {message.delta.new_element.exception.message}")
            elif kind == "script_finished":
                if message.script_finished == ForwardMsg.FINISHED_EARLY_FOR_RERUN:
                    continue
                if not elements:
                    raise RuntimeError(f"{self._page}: the run sent no element")
                return elapsed, size
