"""The whole census: every text architecture of transformers opened, recorded and matched; writes the README's table.

Each tiny model of tests/census.py is built, saved, opened, traced at four lengths in each stack, held against
transformers' own forward pass bit for bit and against the formulas. All that takes, the library's part too, is in the
seconds; the aim is four minutes on two cores.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.table import Row

__all__ = ["Result", "markdown", "measure", "pinned", "rows", "run", "table_in", "write"]

README = Path(__file__).resolve().parents[1] / "README.md"
SECONDS = 240.0
_TABLE = re.compile(r"(<!-- census -->\n).*?(<!-- /census -->)", re.DOTALL)


@dataclass(frozen=True)
class Result:
    """What went right with one configuration.

    found: the schemes of all stacks are those that are known of it; exact: the block input is transformers' own, bit
    for bit; positions: whether any enter; matched: the formulas give what was recorded; attention: q, k and scores
    """

    name: str
    found: bool
    exact: bool
    positions: bool
    matched: bool
    attention: bool


def rows() -> Iterator[Row]:
    """Runs the census, writes the README's table, and gives one row: its seconds beside those allowed."""
    start = time.perf_counter()
    results = run()
    seconds = time.perf_counter() - start
    write(results)
    for line in markdown(results).splitlines():
        print(line)
    yield Row(f"census: {len(results)} models opened, recorded, matched", seconds, SECONDS, "allowed", "s", 1.0)


def run() -> list[Result]:
    """Every configuration, in two processes of one thread each."""
    from tests import census

    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(measure, census.ENTRIES, chunksize=8))


def measure(name: str) -> Result:
    """One configuration, by its name in the census."""
    from tests import census

    found = any(census.expected(name)) and census.found(name) == census.expected(name)
    try:
        outcome = census.full(name)
    except Exception:  # not opened: whatever stopped it, nothing more is had
        return _result(name, found, False, False, False)
    return _result(name, found, not outcome.exact, not outcome.matched, not outcome.attention)


def pinned() -> list[Result]:
    """The same as the tests have it: a test fails where one of these is not so."""
    from tests import census

    lists = (census.UNREACHED, census.NOT_EXACT, census.NOT_MATCHED, census.NO_ATTENTION)
    return [_result(name, *(name not in missing for missing in lists)) for name in census.ENTRIES]


def _result(name: str, found: bool, exact: bool, matched: bool, attention: bool) -> Result:
    from tests import census

    return Result(name, found, exact, set(census.expected(name)) != {"none"}, matched, attention)


# --- the README's table

_ROWS = (
    ("scheme found, before any weight is read", "found"),
    ("first block's input, bit for bit the library's", "exact"),
    ("what positions inject, by the formula", "matched"),
    ("q, k and scores of an attention layer", "attention"),
)


def markdown(results: Iterable[Result]) -> str:
    """The table of how many of how many, and that of the exceptions by name, with the reason of each."""
    import transformers

    from tests import census

    results = list(results)
    groups = [[r for r in results if (r.name in census.OPTIONS) == option] for option in (False, True)]
    lines = [f"| transformers {transformers.__version__} | of {len(groups[0])} types | of {len(groups[1])} options |"]
    lines.append("| --- | --- | --- |")
    for label, field in _ROWS:
        counts = []
        for group in groups:
            without = sum(r.matched and not r.positions for r in group) if field == "matched" else 0
            good = sum(getattr(r, field) for r in group) - without
            counts.append(f"{good} ({without} have no positions)" if without else str(good))
        lines.append(f"| {label} | {' | '.join(counts)} |")
    lines += ["", "| not had | of | because |", "| --- | --- | --- |"]
    for names, fields, why in _exceptions(results):
        what = "anything" if len(fields) == len(_ROWS) else ", ".join(fields)
        lines.append(f"| {what} | {', '.join(f'`{name}`' for name in names)} | {why} |")
    return "\n".join(lines)


def _exceptions(results: list[Result]) -> Iterator[tuple[list[str], list[str], str]]:
    """Those with the same things missing for the same reason, together."""
    from tests import census

    short = {"found": "scheme", "exact": "block input", "matched": "match", "attention": "attention"}
    together: dict[tuple, list[str]] = {}
    for r in results:
        missing = tuple(short[field] for _, field in _ROWS if not getattr(r, field))
        if missing:
            together.setdefault((missing, census.WHY.get(r.name, "not known yet")), []).append(r.name)
    for (missing, why), names in sorted(together.items(), key=lambda item: -len(item[0][0])):
        yield names, list(missing), why


def table_in(text: str) -> str:
    """What stands between the markers."""
    found = _TABLE.search(text)
    assert found is not None, "README.md has lost its markers <!-- census --> and <!-- /census -->"
    return found[0].removeprefix(found[1]).removesuffix(found[2]).strip()


def write(results: Iterable[Result], file: Path = README) -> None:
    """Puts the table between the file's markers."""
    text = file.read_text(encoding="utf-8")
    table_in(text)
    file.write_text(_TABLE.sub(lambda found: f"{found[1]}{markdown(results)}\n{found[2]}", text), encoding="utf-8")
