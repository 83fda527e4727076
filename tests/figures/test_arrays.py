"""The NPZ of a figure: what was put in comes out, with names, and without pickle."""

import io
import json

import numpy as np
import pytest

from tests.figures.kinds import KINDS, NASTY, make
from tinput import figures
from tinput.figures import arrays


def load(data: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return dict(file)


def test_a_heatmap_comes_back_exactly_with_its_labels_and_source():
    values = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32) * 1e-7
    found = load(
        figures.to_npz(figures.heatmap(values, ["<s>", "1", "2", "3"], positions=[2, 3, 4, 5]), {"model": "m"})
    )
    np.testing.assert_array_equal(found["values"], values)
    assert found["rows"].tolist() == ["<s>", "1", "2", "3"]
    assert found["row_positions"].tolist() == [2, 3, 4, 5]
    assert found["columns"].tolist() == [0, 1, 2, 3, 4]
    assert "masked" not in found
    about = json.loads(str(found["provenance"]))
    assert about["model"] == "m"
    assert about["note"] == "float32"


def test_masked_nan_and_infinite_cells_stay_apart():
    values = np.arange(16, dtype=np.float32).reshape(4, 4)
    values[0, 1:], values[2, 2], values[3, 0] = -np.inf, np.nan, np.inf
    found = load(figures.to_npz(figures.heatmap(values, list("abcd"), list("abcd"), column_title="key")))
    assert np.argwhere(found["masked"]).tolist() == [[0, 1], [0, 2], [0, 3]]
    assert np.isnan(found["values"][2, 2])
    assert np.isposinf(found["values"][3, 0])
    assert found["values"][3, 1:].tolist() == [13, 14, 15]


def test_panels_are_one_array():
    values = np.arange(18, dtype=np.float32).reshape(2, 3, 3)
    found = load(figures.to_npz(figures.panels(values, ["head 0", "head 1"], list("abc"), list("abc"))))
    np.testing.assert_array_equal(found["values"], values)
    assert found["panels"].tolist() == ["head 0", "head 1"]


def test_series_are_columns_with_the_headings_of_the_csv():
    y = np.random.default_rng(1).random(12).astype(np.float32)
    found = load(figures.to_npz(figures.bars(y, [str(i) for i in range(12)], y_title="L2 norm")))
    np.testing.assert_array_equal(found["L2_norm"], y)
    assert found["token"].tolist() == [str(i) for i in range(12)]  # tokens are text, digits or not
    assert found["position"].tolist() == list(range(12))
    found = load(figures.to_npz(figures.lines({"a": [1.5, 2.5], "b": [3.0, 4.0]}, [10, 20], x_title="distance")))
    assert found["series"].tolist() == ["a", "a", "b", "b"]
    assert found["distance"].tolist() == [10, 20, 10, 20]
    assert found["value"].tolist() == [1.5, 2.5, 3, 4]


def test_columns_of_any_table():
    found = arrays.columns("# model: m\nfile,a b,a b,empty\nx,1,,\n# no comment,2,2.5,\n")
    assert {name: column.tolist() for name, column in found.items() if name != "a_b_2"} == {
        "file_2": ["x", "# no comment"],
        "a_b": [1, 2],
        "empty": ["", ""],
    }
    np.testing.assert_array_equal(found["a_b_2"], np.array([np.nan, 2.5], np.float32))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_figure(kind):
    found = load(figures.to_npz(make(kind)))
    assert len(found) > 1
    assert all(array.dtype.kind in "fiUb" for array in found.values())
    if kind in ("heatmap", "similarity", "masked"):
        assert len(found["rows"]) == len(NASTY)


def test_a_figure_without_numbers_is_refused():
    import plotly.graph_objects as go

    with pytest.raises(ValueError, match="no numbers"):
        figures.to_npz(go.Figure())


def test_a_table_of_any_text_comes_back():
    import pandas

    texts = ['$a$, "b"', "<s>", "nul \0 tab \t", "line\nend\r\n", "# no comment", "x", "", "مرحبا 🥱"]
    frame = pandas.DataFrame({"piece": texts, "position": range(8), "special": [True, False] * 4})
    found = load(figures.csv_to_npz("# model: m\n" + frame.to_csv(index=False), {"model": "m"}))
    assert [text.replace("\r\n", "\n") for text in texts] == [
        str(text).replace("\r\n", "\n") for text in found["piece"].tolist()
    ]
    assert found["position"].tolist() == list(range(8))
    assert found["special"].tolist() == ["True", "False"] * 4
    assert json.loads(str(found["provenance"])) == {"model": "m"}
