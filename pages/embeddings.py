"""Which tokens are alike, before and after position comes in?"""

from tinput import figures, measure
from tinput.ui import kit, words

page = kit.start("Which tokens are alike, before and after position comes in?")
trace, large = page.trace, kit.large()
raw = next((stage for stage in trace.stages if stage.role == "token"), trace.stages[0])
index = trace.stages.index(raw)

part = kit.choose("Look at", ["Similarity", "Nearest tokens", "Norms", "Map"], key="look")


def choice_of_input() -> tuple:
    """Raw rows or what enters the block: (values, how code names them, words)."""
    which = kit.choose("Of", ["Raw embedding", "Block input"], key="of")
    if which == "Raw embedding":
        return raw.value, f"trace.stages[{index}].value", "the raw embedding rows"
    return page.matrix(trace.block_input), "trace.block_input", "the vectors that enter the first block"


if part == "Similarity":
    with kit.panel("How alike each two tokens are, raw and as they enter the first block") as panel:
        alike = [measure.cosine(raw.value), measure.cosine(page.matrix(trace.block_input))]
        figure = figures.panels(
            alike,
            ["raw embedding", "block input"],
            page.labels,
            page.labels,
            row_title="token",
            column_title="token",
            value_title="cosine similarity",
            scale="diverging",
            limits=(-1, 1),
            across=2,
            large=large,
        )
        page.show(
            figure,
            "similarity",
            code=f"alike = [tinput.measure.cosine(x) for x in (trace.stages[{index}].value, trace.block_input)]\n"
            "tinput.figures.panels(alike, ['raw embedding', 'block input'], labels, labels,\n"
            "                      value_title='cosine similarity', limits=(-1, 1))",
        )
        panel.say(
            *words.alike(page, *alike),
            formula=r"\cos(a,b)=\frac{a\cdot b}{\|a\|\,\|b\|}",
        )

elif part == "Nearest tokens" and page.model.remote:
    kit.sentences(
        f"This takes all {page.model.vocab_size:,} rows of the table, {raw.value.shape[-1]:,} numbers each, and is not "
        "read over the network: download the model and open its folder to see them."
    )

elif part == "Nearest tokens":
    with kit.panel("The nearest tokens of the whole vocabulary") as panel:
        token = kit.token(page)
        near = page.nearest(token)
        figure = figures.bars(
            [cosine for _, cosine in near],
            [label for label, _ in near],
            x_title="token of the vocabulary",
            y_title="cosine similarity",
            large=large,
        )
        page.show(
            figure,
            "nearest",
            code="from tinput.tokens import vocabulary_labels\n\n"
            f"near = tinput.measure.nearest(model.embedding_rows, trace.stages[{index}].value[{token}], {len(near)},\n"
            f"                              count=model.vocab_size, without={page.tokens.ids[token]})\n"
            "names = vocabulary_labels(model.tokenizer, near.index.tolist())\n"
            "tinput.figures.bars(near.cosine, names, x_title='token of the vocabulary', y_title='cosine similarity')",
        )
        panel.say(
            f"Of {page.model.vocab_size:,} rows, these point most nearly where that of {page.labels[token]} points. "
            f"The nearest, {near[0][0]}, has cosine {near[0][1]:.3f}.",
            "This is the raw table: no text and no position has a part in it.",
        )

elif part == "Norms":
    with kit.panel("The length of each token's vector") as panel:
        norms = {
            "raw embedding": measure.norms(raw.value),
            "block input": measure.norms(page.matrix(trace.block_input)),
        }
        figure = figures.lines(norms, x_title="token", y_title="L2 norm", labels=page.labels, large=large)
        page.show(
            figure,
            "embedding-norms",
            code=f"norms = {{'raw embedding': tinput.measure.norms(trace.stages[{index}].value),\n"
            "         'block input': tinput.measure.norms(trace.block_input)}\n"
            "tinput.figures.lines(norms, x_title='token', y_title='L2 norm', labels=labels)",
        )
        low, high = int(norms["raw embedding"].argmin()), int(norms["raw embedding"].argmax())
        panel.say(
            f"The shortest row is that of {page.labels[low]}, the longest that of {page.labels[high]}: common tokens "
            "often have short ones.",
            f"Between the table and the first block the mean length goes from "
            f"{float(norms['raw embedding'].mean()):.3g} to {float(norms['block input'].mean()):.3g}.",
            formula=r"\|x\|_2=\sqrt{\textstyle\sum_i x_i^2}",
        )

else:
    with kit.panel("The tokens on a plane") as panel:
        values, name, said = choice_of_input()
        plane = measure.project(values)
        figure = figures.scatter(
            plane.points,
            page.labels,
            values=page.place,
            value_title="position",
            positions=page.place,
            large=large,
        )
        page.show(
            figure,
            "map",
            code=f"points = tinput.measure.project({name}).points\n"
            "tinput.figures.scatter(points, labels, values=range(len(trace.ids)))",
        )
        panel.say(
            f"The two directions in which {said} differ most hold {float(plane.share.sum()):.0%} of their variance.",
            "Equal tokens lie on one point while only the token counts, and part when position is added."
            if len(set(page.tokens.ids)) < page.seq
            else "The colour is the token's position.",
        )
