"""What comparing costs: the bundled six on one page, and the memory of two large models beside each other.

The page is measured as all pages are (benchmarks/pages.py), each of its views with six models and 200 tokens. Memory is
that of a process which opens two models, traces both, keeps both traces and correlates what entered their first blocks.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.models import MB, _ids, _llama, _Memory, _small_sibling, _touched
from benchmarks.pages import RERUNS, _text, _Visit
from benchmarks.table import Row
from tests.serve import server

TOKENS = 200
RERUN, BYTES = 1_000, 1_500_000  # milliseconds, bytes
VIEWS = ("Facts", "Block inputs", "What each injects", "Similarity", "Norms", "Spectra", "Attention")
MODEL = "tinput/rope"


def rows() -> Iterator[Row]:
    """The table's rows: each view of the side by side page with all bundled models; two models' memory."""
    text = _text(MODEL, TOKENS)
    with server() as url:
        for view in VIEWS:
            with _Visit(url, "side_by_side", MODEL, text, columns="Bundled six", compare=view) as visit:
                reruns = [visit.rerun() for _ in range(RERUNS)]
                what = f"six side by side, {TOKENS} tokens, {view}"
                yield Row(f"{what}: rerun", 1e3 * statistics.median(reruns), RERUN, "the aim", "ms", 1.0)
                yield Row(f"{what}: first sight", visit.bytes / 1e3, BYTES / 1e3, "the aim", "kB", 1.0)
    if not Path("/proc/self/clear_refs").exists():
        print("  memory is measured on Linux only", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory(prefix="tinput-bench-") as scratch:
        yield _two_models(Path(scratch))


def _two_models(scratch: Path) -> Row:
    first, second = _llama(scratch / "first"), scratch / "second"
    second.mkdir()
    for path in first.iterdir():  # other paths, other maps in memory; the same bytes on the disk
        os.link(path, second / path.name)
    small = _small_sibling(first, scratch / "small")
    command = [sys.executable, "-m", "benchmarks.compare", str(first), str(second), str(small)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"comparing two models failed:\n{done.stderr[-4000:]}")
    allowed = (2 * _touched(first) + 50 * MB) / MB
    peak = json.loads(done.stdout.splitlines()[-1])["peak"]
    return Row("two of Llama, 1.2 B, compared: peak memory", peak, allowed, "tensors touched + 50 MB", "MB", 1.0)


def _compare(*folders: Path) -> float:
    import tinput

    traces = [tinput.open_model(str(folder)).trace(ids=_ids(folder)) for folder in folders]
    alike = [tinput.measure.cosine(trace.block_input) for trace in traces]
    return tinput.align.correlation(*alike)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", type=Path, nargs=3, help="two models, and a small one for first calls")
    *two, toy = parser.parse_args().folders
    _compare(toy, toy)
    with _Memory() as memory:
        r = _compare(*two)
    print(json.dumps({"peak": memory.peak / MB, "correlation": r}))
