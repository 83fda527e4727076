"""The Python that a page offers, run as it stands, against the picture beside it."""

from __future__ import annotations

import ast
import json
from typing import Any

import numpy as np
from streamlit.testing.v1 import AppTest

from tests import app


def run(block: str) -> Any:
    """The value of the last expression."""
    tree = ast.parse(block)
    *before, last = tree.body
    assert isinstance(last, ast.Expr), "the last line makes the figure"
    space: dict[str, Any] = {}
    exec(compile(ast.Module(before, []), "<shown>", "exec"), space)
    return eval(compile(ast.Expression(last.value), "<shown>", "eval"), space)


def assert_draws_the_same(at: AppTest, *, atol: float = 1e-5, all_of_it: bool = False) -> None:
    """The code's figure shows the numbers of the page's; all_of_it: each matrix, line, bar and band, by its name."""
    (block,) = app.code(at)
    assert "array" not in block, "code holds calls, no values"
    (shown,) = app.figures(at)
    made = run(block)
    if all_of_it:
        assert _drawn(made) == _drawn(shown)
    assert_same_numbers(made, shown, atol=atol)


def assert_same_numbers(made: Any, shown: Any, *, atol: float = 1e-5) -> None:
    """Two figures show the same numbers: every matrix, and every line or bar that both have."""
    of = [figure["data"] if isinstance(figure, dict) else figure.data for figure in (made, shown)]
    ours, theirs = [[t for t in traces if _values(t) is not None] for traces in of]
    assert ours
    for mine, other in zip(ours, theirs, strict=False):
        a, b = _values(mine), _values(other)
        assert a is not None
        assert b is not None
        if a.shape == b.shape:
            np.testing.assert_allclose(a, b, atol=atol)
        else:
            assert a.ndim == b.ndim  # the page thins or frames what the code shows whole


def assert_the_same(made: Any, shown: dict[str, Any]) -> None:
    """Two figures hold the same, bar for bar: numbers, places, labels and colours."""
    ours = app._unpacked(json.loads(made.to_json()))
    for one, other in zip(ours["data"], shown["data"], strict=True):
        assert one.keys() == other.keys()
        for key in one:
            np.testing.assert_equal(one[key], other[key], err_msg=key)
    for axis in ("xaxis", "yaxis"):
        np.testing.assert_equal(ours["layout"][axis], shown["layout"][axis], err_msg=axis)


def _drawn(figure: Any) -> list[tuple[Any, Any]]:
    """What a figure draws, by name: each matrix, line, bar and band that holds something."""
    data = app._unpacked(json.loads(figure.to_json()))["data"] if not isinstance(figure, dict) else figure["data"]
    held = [t for t in data if (values := t.get("z", t.get("y"))) is not None and len(values) and values[0] is not None]
    return [(trace.get("name"), trace.get("meta")) for trace in held]


def _values(trace: Any) -> np.ndarray | None:
    get = trace.get if isinstance(trace, dict) else lambda key: getattr(trace, key, None)
    values = get("z") if get("type") == "heatmap" else get("y")
    if values is None or len(values) == 0 or values[0] is None or get("meta") == "band":
        return None
    return np.asarray(values, float)
