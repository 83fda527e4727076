"""The Side by side page: several models, one text, aligned by its bytes, on one colour scale."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tinput
from benchmarks.compare import VIEWS
from tests import app, makers, tiny
from tests.pages import code_shown
from tinput import align, measure
from tinput.positions import SCHEMES
from tinput.twins import NAMES

WORDS = "the cat sat unhappy, café"


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> str:
    """A tiny BERT that lower-cases, drops accents and blanks, and adds [CLS] and [SEP]; 64 wide, 4 heads."""
    folder = tmp_path_factory.mktemp("models") / "bert"
    tiny.make("bert", folder)
    makers.wordpiece().save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def marian(tmp_path_factory) -> str:
    """A tiny encoder and decoder."""
    folder = tmp_path_factory.mktemp("models") / "marian"
    tiny.make("marian", folder, vocab_size=400)
    makers.byte_level().save_pretrained(folder)
    return str(folder)


def trace(name: str, text: str = app.TEXT, **more: Any) -> Any:
    return tinput.open_model(name).trace(text, **more)


def rows(at) -> dict[str, list[str]]:
    """The table of facts: what -> the models' values; a row that is marked starts with *."""
    found = {}
    for marked, body in re.findall(r"<tr( class=differs)?>(<td>.*?)</tr>", app.html(at)):
        what, *values = (app.plain(cell).strip() for cell in re.findall(r"<td>(.*?)</td>", body))
        found[("*" if marked else "") + what] = values
    return found


# --- facts


def test_facts_that_differ_are_marked(bert):
    at = app.show("side_by_side", WORDS, "tinput/sinusoidal", other="tinput/rope", columns="3", third=bert)
    shown = rows(at)
    assert all(what.startswith("*") for what in shown)  # what is equal is folded away
    models = [tinput.open_model(name) for name in ("tinput/sinusoidal", "tinput/rope", bert)]
    traces = [model.trace(WORDS) for model in models]
    assert shown["*position scheme"] == ["Sinusoidal", "RoPE", "Learned table"]
    assert shown["*tokens of this text"] == [str(len(each.ids)) for each in traces]
    assert shown["*vocabulary"] == [f"{model.vocab_size:,}" for model in models]
    assert shown["*width"] == ["128", "128", "64"]
    assert shown["*norm before block 1"][:2] == ["none", "none"]
    assert "layer norm" in shown["*norm before block 1"][2]
    assert shown["*embedding scale"][1:] == ["× 11.31 (√d_model)", "none"]
    assert "16 pairs" in shown["*as recorded"][1]
    sizes = [sum(p.stat().st_size for p in model.folder.glob("*.safetensors")) for model in models]
    for said, size in zip(shown["*weights in the files"], sizes, strict=True):
        tensors = int(said.split(" bytes")[0].replace(",", ""))
        assert 0.9 * size < tensors < size  # the header is left out


def test_grouped_keys_and_values_are_counted(tmp_path):
    tiny.make("llama", tmp_path, vocab_size=400, max_position_embeddings=77)
    makers.byte_level().save_pretrained(tmp_path)
    shown = rows(app.show("side_by_side", WORDS, str(tmp_path), other="tinput/rope"))
    attention = trace(str(tmp_path), WORDS).attention
    assert shown["*key and value heads"] == [str(attention.kv_heads), "4"]
    assert attention.kv_heads < attention.heads
    assert shown["*context length"] == ["77", "256"]
    assert "*heads" not in shown


def test_what_is_equal_is_shown_when_asked_for():
    at = app.show("side_by_side", model="tinput/sinusoidal", other="tinput/rope", equal="true")
    shown = rows(at)
    assert shown["heads"] == shown["key and value heads"] == ["4", "4"]
    assert shown["context length"] == ["256", "256"]
    assert shown["dtype of the checkpoint"] == ["float16", "float16"]
    assert "Pieces, ids and positions are the same throughout." in app.words(at)
    assert "Norms first differ at token 0, The." in app.words(at)


@pytest.mark.parametrize("name", ["tinput/rope", "tinput/none"])
def test_the_same_model_twice_does_not_differ(name):
    at = app.show("side_by_side", model=name, other=name)
    assert "All facts are equal" in app.words(at)
    assert "same throughout" in app.words(at)
    assert "differ at" not in app.words(at)
    alike = app.show("side_by_side", model=name, other=name, compare="Similarity")
    assert "r = 1.000" in app.words(alike)
    less = app.show("side_by_side", model=name, other=name, compare="Block inputs", minus="true")
    assert not app.heat(app.figures(less)[0]).any()


# --- tokens, aligned


def test_tokens_of_the_same_bytes_stand_together(bert):
    at = app.show("side_by_side", WORDS, "tinput/rope", other=bert)
    common = align.align(tinput.open_model("tinput/rope").tokenize(WORDS), tinput.open_model(bert).tokenize(WORDS))
    blocks = re.findall(r'<div class="part" data-part="(\d+)">(.*?)</div>', app.html(at))
    assert [int(number) for number, _ in blocks] == list(range(len(common.parts)))
    assert "Tokens of the same bytes of the text stand one below the other" in app.words(at)
    for (_, block), part in zip(blocks, common.parts, strict=True):
        lines = re.findall(r'<span class="line"[^>]*>(.*?)</span>(?=<span class="line|$)', block)
        for k, (line, name) in enumerate(zip(lines, ("tinput/rope", bert), strict=True)):
            shown = re.findall(r'class="tok[^>]*>(.*?)</span>', line)
            own = tinput.open_model(name).tokenize(WORDS).labels[slice(*part.tokens[k])]
            assert [app.plain(label) for label in shown] == (list(own) or ["∅"])


def test_columns_with_the_same_tokens_share_a_line():
    assert app.chips(app.show("side_by_side", columns="Bundled six")) == list(
        tinput.open_model(NAMES[0]).tokenize(app.TEXT).labels
    )


# --- pictures


def test_block_inputs_are_the_recorded_ones_on_one_scale():
    at = app.show("side_by_side", model="tinput/learned", other="tinput/alibi", columns="4", compare="Block inputs")
    (figure,) = app.figures(at)
    shown = app.heats(figure)
    for values, name in zip(
        shown, ("tinput/learned", "tinput/alibi", "tinput/alibi", "tinput/relative_bias"), strict=True
    ):
        np.testing.assert_array_equal(values, trace(name).block_input.numpy())
    assert {part["coloraxis"] for part in figure["data"] if part["type"] == "heatmap"} == {"coloraxis"}


def test_rows_of_other_tokens_stand_at_the_height_of_their_text(bert):
    at = app.show("side_by_side", WORDS, "tinput/rope", other=bert, compare="Block inputs")
    (figure,) = app.figures(at)
    models = [tinput.open_model(name) for name in ("tinput/rope", bert)]
    common = align.align(*(model.tokenize(WORDS) for model in models))
    edges = figure["layout"]["meta"]["edges"]
    assert len(edges) == len(common.parts) + 1
    for k, (model, drawn) in enumerate(zip(models, [t for t in figure["data"] if t["type"] == "heatmap"], strict=True)):
        recorded = model.trace(WORDS).block_input.numpy()
        place = 0
        for part, (first, stop) in enumerate(common.ranges(k)):
            here = max(1, stop - first)
            assert drawn["y"][place] == edges[part]
            if stop > first:
                np.testing.assert_array_equal(drawn["z"][place : place + here], recorded[first:stop])
            else:
                assert np.isnan(drawn["z"][place]).all()
            place += here
        assert drawn["y"][place] == edges[-1]


def test_the_difference_is_shown_where_widths_agree(bert):
    at = app.show(
        "side_by_side", model="tinput/rope", other=bert, columns="3", third="tinput/none",
        compare="Block inputs", minus="true",
    )  # fmt: skip
    (shown,) = app.heats(app.figures(at)[0])
    ours = trace("tinput/none").block_input - trace("tinput/rope").block_input
    seen = np.isfinite(shown).all(axis=1)
    np.testing.assert_allclose(shown[seen], ours.numpy(), atol=1e-6)
    assert "Not shown: " in app.words(at)
    assert "not as wide as tinput/rope" in app.words(at)
    alone = app.show("side_by_side", model="tinput/rope", other=bert, compare="Block inputs", minus="true")
    assert not app.figures(alone)
    assert "No other column is as wide as tinput/rope" in app.words(alone)


@pytest.mark.parametrize("name", NAMES)
def test_what_each_injects(name):
    effect = trace(name).effect
    at = app.show("side_by_side", model=name, other=name, compare="What each injects")
    shown = [app.heats(figure) for figure in app.figures(at)]
    match effect:
        case tinput.Add():
            for values in shown[0]:
                np.testing.assert_array_equal(values, effect.vectors.numpy())
        case tinput.Rotate():
            for values in shown[0]:
                turned = np.exp(1j * values.astype(float))
                np.testing.assert_allclose(turned, np.exp(1j * effect.angles.double().numpy()), atol=1e-5)
        case tinput.Bias():
            for values in shown[0]:
                seen = np.isfinite(values)
                assert seen.sum() == len(values) * (len(values) + 1) / 2  # later keys are masked
                np.testing.assert_array_equal(values[seen], effect.scores[0].numpy()[seen])
        case _:
            assert not shown
            assert "Nothing enters from position" in app.words(at)


def test_effects_of_one_kind_are_on_one_picture():
    at = app.show("side_by_side", model="tinput/alibi", columns="Bundled six", compare="What each injects", head="2")
    added, turned, bias = app.figures(at)
    assert [len(app.heats(figure)) for figure in (added, turned, bias)] == [2, 1, 2]
    for values, name in zip(app.heats(bias), ("tinput/alibi", "tinput/relative_bias"), strict=True):
        seen = np.isfinite(values)
        np.testing.assert_array_equal(values[seen], trace(name).effect.scores[2].numpy()[seen])


@pytest.mark.parametrize("scheme", ["sinusoidal", "rope", "alibi", "none"])
def test_a_what_if_is_the_formula_at_the_models_sizes(scheme, bert):
    label = f"as if {SCHEMES[scheme].LABEL}"
    at = app.show("side_by_side", WORDS, bert, other="tinput/none", compare="What each injects", as1=label)
    assert f"What if bert-0/bert had {SCHEMES[scheme].LABEL}" in re.sub(r"models\d+/", "bert-0/", app.words(at))
    seq = len(tinput.open_model(bert).tokenize(WORDS).ids)
    expected = SCHEMES[scheme].predict(
        {"hidden_size": 64, "num_attention_heads": 4, "head_dim": 16}, torch.arange(seq), heads=4, width=64, keys=seq
    )
    if isinstance(expected, tinput.Nothing):
        assert not app.figures(at)
        return
    (figure,) = app.figures(at)
    values = next(v for v in vars(expected).values() if isinstance(v, torch.Tensor))
    values = expected.angles.double() % (2 * np.pi) if isinstance(expected, tinput.Rotate) else values
    values = values[0] if isinstance(expected, tinput.Bias) else values
    (shown,) = app.heats(figure)
    present = np.isfinite(shown)
    np.testing.assert_allclose(shown[present], values.numpy()[: len(shown)].ravel()[: present.sum()], atol=1e-5)
    assert not app.code(at)  # not recorded: there is no trace to make it from


def test_a_learned_table_is_no_what_if():
    at = app.show("side_by_side", compare="What each injects", as1=f"as if {SCHEMES['learned'].LABEL}")
    assert at.selectbox(key="as1").value == "its own scheme"
    assert not any(
        SCHEMES[name].LABEL in option
        for name in ("learned", "relative_bias")
        for option in at.selectbox(key="as1").options
    )


def parts(names: list[str], text: str):
    """Each model's block input, pooled by part with numpy: what the page's matrices are made from."""
    models = [tinput.open_model(name) for name in names]
    common = align.align(*(model.tokenize(text) for model in models))
    found = []
    for k, model in enumerate(models):
        x = model.trace(text).block_input.double().numpy()
        found.append(
            np.array([x[a:b].mean(axis=0) if b > a else np.full(x.shape[1], np.nan) for a, b in common.ranges(k)])
        )
    return common, found


def test_similarities_and_their_correlation(bert):
    at = app.show("side_by_side", WORDS, "tinput/rope", other=bert, compare="Similarity")
    _, (one, two) = parts(["tinput/rope", bert], WORDS)
    expected = []
    for x in (one, two):
        y = x / np.linalg.norm(x, axis=1, keepdims=True)
        expected.append(y @ y.T)
    for values, own in zip(app.heats(app.figures(at)[0]), expected, strict=True):
        np.testing.assert_allclose(values, own, atol=1e-5)
    upper = np.triu_indices(len(one), 1)
    a, b = expected[0][upper], expected[1][upper]
    both = np.isfinite(a) & np.isfinite(b)
    r = np.corrcoef(a[both], b[both])[0, 1]
    assert f"r = {r:.3f}" in app.words(at)
    other = app.show("side_by_side", WORDS, bert, other="tinput/rope", compare="Similarity")
    assert f"r = {r:.3f}" in app.words(other)  # whichever comes first


def test_all_correlations_are_in_a_table():
    names = ["tinput/rope", "tinput/rope", "tinput/sinusoidal"]
    at = app.show("side_by_side", model=names[0], columns="3", other=names[1], third=names[2], compare="Similarity")
    table = rows(at)
    upper = np.triu_indices(len(trace(names[0]).ids), 1)
    one, two = (measure.cosine(trace(name).block_input).double().numpy()[upper] for name in names[1:])
    r = f"{np.corrcoef(one, two)[0, 1]:.3f}"
    assert list(table.values()) == [["", "1.000", r], ["1.000", "", r], [r, r, ""]]
    assert "most alike are tinput/rope and tinput/rope (2), r = 1.000" in app.words(at)


def test_norms_and_spectra(bert):
    common, _ = parts(["tinput/rope", bert], WORDS)
    at = app.show("side_by_side", WORDS, "tinput/rope", other=bert, compare="Norms")
    lines = list(app.series(app.figures(at)[0]).values())
    for k, (line, name) in enumerate(zip(lines, ("tinput/rope", bert), strict=True)):
        norms = np.linalg.norm(trace(name, WORDS).block_input.numpy(), axis=1)
        expected = [norms[a:b].mean() if b > a else np.nan for a, b in common.ranges(k)]
        np.testing.assert_allclose(line, expected, rtol=1e-5)
    at = app.show("side_by_side", WORDS, "tinput/rope", other=bert, compare="Spectra")
    for line, name in zip(app.series(app.figures(at)[0]).values(), ("tinput/rope", bert), strict=True):
        x = trace(name, WORDS).block_input.double().numpy()
        values = np.linalg.svd(x - x.mean(axis=0), compute_uv=False)
        np.testing.assert_allclose(line, values[values > 1e-6 * values[0]] / values[0], rtol=1e-4)


def test_attention_is_the_first_layers(bert):
    at = app.show("side_by_side", model="tinput/rope", other="tinput/alibi", compare="Attention", head="3")
    for values, name in zip(app.heats(app.figures(at)[0]), ("tinput/rope", "tinput/alibi"), strict=True):
        weights = trace(name).attention.weights[3].tensor().numpy()
        seen = np.isfinite(values)
        assert not np.triu(seen, 1).any()  # what the mask hides is blank
        np.testing.assert_allclose(values[seen], weights[np.tril_indices(len(weights))], atol=1e-6)
    at = app.show("side_by_side", WORDS, "tinput/rope", other=bert, compare="Attention", heads="Mean of all")
    common, _ = parts(["tinput/rope", bert], WORDS)
    shown = app.heats(app.figures(at)[0])[1]
    weights = trace(bert, WORDS).attention.weights.tensor().mean(0).double().numpy()
    for i, (a, b) in enumerate(common.ranges(1)):
        for j, (c, d) in enumerate(common.ranges(1)):
            if b > a and d > c:
                assert shown[i, j] == pytest.approx(weights[a:b, c:d].sum(axis=1).mean(), abs=1e-5)
            else:
                assert np.isnan(shown[i, j])


def test_a_model_without_attention_says_why_and_the_others_are_shown(tmp_path):
    tiny.make("mamba", tmp_path, vocab_size=400)
    makers.byte_level().save_pretrained(tmp_path)
    for controls in ({}, {"minus": "true"}):
        at = app.show(
            "side_by_side", WORDS, "tinput/rope", other=str(tmp_path), columns="3", third="tinput/none",
            compare="Attention", **controls,
        )  # fmt: skip
        reason = trace(str(tmp_path), WORDS).attention_reason
        assert reason
        assert f"is not shown: {reason}." in app.words(at)
        assert len(app.heats(app.figures(at)[0])) == (1 if controls else 2)
        code_shown.run(app.code(at)[0])


def test_a_stack_is_chosen_where_there_are_two(marian):
    at = app.show("side_by_side", WORDS, marian, other=marian, stack2="decoder", compare="Block inputs")
    encoder, decoder = app.heats(app.figures(at)[0])
    np.testing.assert_array_equal(encoder, trace(marian, WORDS, stack="encoder").block_input.numpy())
    np.testing.assert_array_equal(decoder, trace(marian, WORDS, stack="decoder").block_input.numpy())
    (code,) = app.code(at)
    made = code_shown.run(code)
    np.testing.assert_array_equal(made.data[-2 if made.data[-1].type != "heatmap" else -1].z.shape, decoder.shape)


# --- columns


def test_every_view_is_measured():
    at = app.show("side_by_side")
    assert tuple(at.button_group(key="compare").options) == VIEWS


def test_a_column_is_removed_and_those_after_it_move_up():
    at = app.show("side_by_side", columns="4", other="tinput/rope", third="tinput/alibi", fourth="tinput/none")
    at.button(key="remove-third").click().run()
    assert not at.exception
    assert at.button_group(key="columns").value == "3"
    assert [at.selectbox(key=key).value for key in ("other", "third")] == ["tinput/rope", "tinput/none"]


@pytest.mark.parametrize("name", NAMES)
def test_columns_that_nobody_chose_differ_from_the_first(name):
    at = app.show("side_by_side", model=name, columns="4")
    lists = [at.selectbox(key=key) for key in ("other", "third", "fourth")]
    assert [each.value for each in lists] == [None] * 3  # nothing is chosen: the address says nothing of them
    shown = [each.proto.placeholder for each in lists]
    assert len({name, *shown}) == 4
    assert rows(at)["*position scheme"] == [SCHEMES[tinput.open_model(each).scheme].LABEL for each in (name, *shown)]
    at.button(key="remove-other").click().run()
    assert not at.exception
    assert [at.selectbox(key=key).value for key in ("other", "third")] == shown[1:]  # moved up as they were shown


def test_the_first_model_can_be_chosen_again():
    at = app.show("side_by_side", model="tinput/rope")
    at.selectbox(key="other").set_value("tinput/rope").run()
    assert "All facts are equal" in app.words(at)
    at.selectbox(key="model").set_value("tinput/alibi").run()
    assert at.selectbox(key="other").value == "tinput/rope"  # what was chosen stays, whatever the default is now


def test_a_model_that_cannot_be_opened_says_so_in_words():
    at = app.show("side_by_side", columns="3", third="/no/such/folder")
    assert "/no/such/folder" in app.trouble(at)
    assert at.text_area(key="text").value == app.TEXT


# --- any text, any view


@pytest.mark.parametrize("columns", ["2", "Bundled six"])
@pytest.mark.parametrize("compare", VIEWS)
def test_the_python_draws_the_same(compare, columns):
    at = app.show("side_by_side", other="tinput/learned", columns=columns, compare=compare)
    figures = app.figures(at)
    blocks = app.code(at)
    assert len(blocks) == len(figures)
    for block, shown in zip(blocks, figures, strict=True):
        made = code_shown.run(block)
        ours = [np.asarray(t.z if t.type == "heatmap" else t.y, float) for t in made.data if t.name]
        theirs = [
            np.asarray(t["z"] if t["type"] == "heatmap" else t["y"], float) for t in shown["data"] if t.get("name")
        ]
        assert len(ours) == len(theirs) > 0
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "compare"), [(app.HOSTILE[0], "Block inputs"), *((text, "Similarity") for text in app.HOSTILE[1:])]
)
def test_any_text(text, compare, bert):
    at = app.show("side_by_side", text, "tinput/rope", other=bert, compare=compare)
    labels = [app.plain(label) for label in re.findall(r'class="tok[^>]*>(.*?)</span>', app.html(at))]
    assert [label for label in labels if label in tinput.open_model("tinput/rope").tokenize(text).labels]
    for block in app.code(at):
        exec(block, {})


def test_a_long_text_shows_some_parts_and_says_which():
    text = "word and " * 400
    at = app.show("side_by_side", text, "tinput/rope", columns="4", compare="Similarity", part0="100")
    (figure,) = app.figures(at)
    shown = app.heats(figure)
    assert [values.shape for values in shown] == [(173, 173)] * 4  # 120,000 cells in all
    assert "tokens 100 to 272 of" in figure["layout"]["meta"]["note"]
    own = trace("tinput/rope", text).block_input[100:273]
    np.testing.assert_allclose(shown[0], measure.cosine(own).numpy(), atol=1e-5)
    assert figure["layout"]["meta"]["first"] == 100


def test_a_model_with_too_few_positions_cuts_the_common_part():
    text = "word and " * 400
    at = app.show("side_by_side", text, "tinput/rope", other="tinput/learned", compare="Similarity")
    (figure,) = app.figures(at)
    assert "of 256" in figure["layout"]["meta"]["note"]
    assert "Shown: the first 256 of " in app.words(at)  # said where the table ends
    assert len(app.chips(at)) == 256  # one line: the tokens are the same as far as both go
    (code,) = app.code(at)
    np.testing.assert_allclose(code_shown.run(code).data[0].z, app.heat(figure), atol=1e-5)


@pytest.mark.browser
def test_hovering_a_part_marks_its_bytes_everywhere(browser, app_url, bert):
    page = browser.new_page(viewport={"width": 1280, "height": 1400})
    query = f"text=the+cat+sat&model=tinput/rope&other={Path(bert).as_posix()}&compare=Block+inputs"
    page.goto(f"{app_url}/side_by_side?{query}")
    page.wait_for_function("document.querySelectorAll('.js-plotly-plot .hm').length >= 2", timeout=60_000)
    page.locator('.part[data-part="2"]').hover()
    page.wait_for_function("document.querySelectorAll('.linked-mark').length == 2", timeout=10_000)
    assert page.locator(".part.lit").count() == 1
    marks = [mark.bounding_box() for mark in page.locator(".linked-mark").all()]
    assert marks[0]["y"] == marks[1]["y"]
    assert marks[0]["height"] == marks[1]["height"] > 5
    page.mouse.move(marks[1]["x"] + 20, marks[1]["y"] + marks[1]["height"] * 1.5)  # the next part, in the second figure
    page.mouse.move(marks[1]["x"] + 25, marks[1]["y"] + marks[1]["height"] * 1.5)
    page.wait_for_selector('.part.lit[data-part="3"]', timeout=10_000)
    page.close()
