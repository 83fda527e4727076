"""Lesson: why GPT-2 stops at 1,024 tokens. A learned table has an end."""

from __future__ import annotations

from tinput import figures, measure
from tinput.errors import TooLong
from tinput.twins import reader
from tinput.twins.extrapolate import context
from tinput.ui import cache, extrapolate, kit
from tinput.ui.lessons.step import Lesson, Step

MODEL = "tinput/learned"
ROWS = context()  # a table of a row for each position of the training
LONG = "The old man saw the young man, and the young man saw the old man. " * 16
FAR = ROWS // 2 + 1  # distances shown: half the table, so that each is a mean over many pairs of rows


def beyond() -> int:
    """More tokens than the table has rows."""
    page = kit.open_page(MODEL, LONG)  # the kit cuts the text to what the table holds; here it is not cut
    ids = tuple(cache.tokens(page.key, LONG).ids)
    rows = page.model.usable_length or 0
    said = ""
    try:
        page.model.trace(ids=ids)
    except TooLong as error:
        said = str(error)
    with kit.panel("The table of positions, row by row") as panel:
        table = page.model.table_rows(page.trace.effects[0].table or "", page.positions)
        if said:
            kit.trouble(said)
        figure = figures.heatmap(
            table,
            row_title="position",
            column_title="dimension",
            note=f"all {rows} rows",
            height=420,
            large=kit.large(),
        )
        code = "tinput.figures.heatmap(model.table_rows(trace.effects[0].table, trace.positions), row_title='position')"
        page.show(figure, "lesson-table", code=code)
        panel.say(
            f"This is all that the model knows of positions: {rows} rows, each found by training.",
            f"There is no row {rows}, and no rule that would make one. GPT-2's table has 1,024 rows: it stops there "
            "for the same reason.",
        )
    return 2 if said else 0


def neighbours() -> int:
    """How alike two rows are, by how far apart they stand."""
    page = kit.open_page(MODEL, LONG)
    table = page.model.table_rows(page.trace.effects[0].table or "", page.positions)
    alike = measure.cosine(table)  # (row, row)
    last = len(table) - 1
    by_distance = measure.by_distance(alike, signed=False)
    start = float(alike[last, 0])
    with kit.panel("How alike two rows of the table are, by the distance between them") as panel:
        figure = figures.lines(
            {"mean cosine similarity": by_distance.mean[1:FAR]},
            by_distance.distance[1:FAR],
            x_title="rows apart",
            y_title="mean cosine similarity",
            levels=[(start, f"rows {last} and 0: {start:z.2f}")],
            points=False,
            large=kit.large(),
        )
        code = (
            "table = model.table_rows(trace.effects[0].table, trace.positions)\n"
            "alike = tinput.measure.by_distance(tinput.measure.cosine(table))\n"
            f"tinput.figures.lines({{'mean cosine similarity': alike.mean[1:{FAR}]}}, alike.distance[1:{FAR}],\n"
            "                     x_title='rows apart')"
        )
        page.show(figure, "lesson-neighbours", code=code)
        near, far = float(by_distance.mean[1]), float(by_distance.mean[FAR - 1])
        panel.say(
            f"Neighbours have a mean similarity of {near:.2f}, rows {FAR - 1} apart of {far:.2f}: training gave near "
            "positions like vectors.",
            f"A text that went on with row 0 would have rows {last} and 0 for neighbours, and they have {start:z.2f}: "
            "to the model the text would jump.",
        )
    return 0 if near > far + 0.05 else 1


def past_the_end() -> int:
    """What it costs to clamp or to wrap the positions."""
    page = extrapolate.of_the_twins(kit.open_page(MODEL, LONG))
    found = extrapolate.source(extrapolate.NOVEL, LONG)
    ways = [reader.Variant(MODEL), *reader.variants(MODEL, 1)]
    known, _ = extrapolate.curves(found, ways)
    figure, code = extrapolate.picture(found, known, by_length=True, bits=False)
    assert figure is not None
    assert found.plan is not None
    trained = found.plan.lengths.index(found.plan.context)
    with kit.panel(
        "How well the model predicts a novel, with rows that it has in place of those that it lacks"
    ) as panel:
        extrapolate.band("The model was not trained so: rows that it has stand where it has none.")
        page.show(figure, "lesson-past", code=code)
        rise = {}
        for variant, curve in known.items():
            first, last = curve.by_length[trained], curve.by_length[-1]
            if variant.change and first is not None and last is not None:
                rise[variant.change] = last - first
        panel.say(
            f"From {found.plan.context} to {found.plan.longest:,} tokens the loss rises by "
            + " and ".join(f"{value:.3f} ({change})" for change, value in rise.items())
            + " nats a byte.",
            "Clamped: all tokens past the end take the last row. Wrapped: the rows begin again.",
        )
    costs = list(rise.values())
    return 0 if max(costs) - min(costs) < 0.01 else 1 + costs.index(min(costs))


LESSON = Lesson(
    "table",
    "Why GPT-2 stops at 1,024",
    (
        Step(
            f"A model with a learned table of {ROWS} positions is given more tokens than that. What does it do?",
            ("It reads on, with rows of zeros", "It begins again at row 0", "It cannot read the text"),
            beyond,
            "learned",
            {"model": MODEL, "text": LONG[:400]},
        ),
        Step(
            f"What if it began again at row 0? Rows {ROWS - 1} and 0 would be neighbours. Are neighbours in this table "
            "more alike than rows far apart?",
            ("Yes", "No, all rows are alike"),
            neighbours,
            "learned",
            {"model": MODEL, "text": LONG[:400]},
        ),
        Step(
            "Two ways to read on all the same: repeat the last row, or begin again at row 0. Which one costs less?",
            ("Both cost about the same", "Repeating the last row", "Beginning again"),
            past_the_end,
            "extrapolate",
            {"model": MODEL},
        ),
    ),
)
