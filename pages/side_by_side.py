"""What do several models make of the same sentence?"""

from tinput import figures, measure
from tinput.positions import SCHEMES, Add, Bias, Content, Rotate
from tinput.ui import columns, facts, kit

KINDS = {Add: "Vectors that are added", Rotate: "Angles by which q and k turn", Bias: "Bias on the scores",
         Content: "Content and distance in the scores"}  # fmt: skip

page = kit.start("What do several models make of the same sentence?", head=False)
together = columns.choose(page)
kit.html(columns.chips(together))
large, names, unit = kit.large(), together.names, together.unit
columns.link()

part = kit.choose(
    "Look at",
    ["Facts", "Block inputs", "What each injects", "Similarity", "Norms", "Spectra", "Attention"],
    key="compare",
)


def narrower(chosen: list[int]) -> list[str]:
    """A sentence on the columns that are left out of a difference."""
    left = [names[k] for k in range(1, len(names)) if k not in chosen]
    return [f"Not shown: {', '.join(left)}, not as wide as {names[0]}."] if left else []


def difference() -> bool:
    return kit.toggle(f"Difference to {names[0]}", key="minus", help="Each of the others minus the first column")


if part == "Facts":
    with kit.panel("Facts that differ", wide=True) as panel:
        every = facts.facts([column.page for column in together.columns])
        everything = kit.toggle("Show what is equal too", key="equal")
        kit.html(facts.table([fact for fact in every if everything or fact.differs], names))
        count = sum(fact.differs for fact in every)
        panel.say(
            f"{count} of {len(every)} facts differ." if count else "All facts are equal: it is the same model.",
            *together.first_apart(),
        )

elif part == "Block inputs":
    with kit.panel("What enters the first block", wide=True) as panel:
        minus = difference()
        seen = together.block_inputs(minus)
        if seen.figure is None:
            kit.sentences(f"No other column is as wide as {names[0]}: compare similarities, norms or spectra.")
        else:
            together.show(seen.figure, "inputs", code=seen.code)
            panel.say(
                *(narrower(seen.chosen) if minus else ()),
                *together.first_apart(),
                note="Less the first column" + (", a row the mean over a part's tokens." if unit == "part" else ".")
                if minus
                else "Rows that stand for the same bytes of the text stand at one height. One colour scale for all.",
            )

elif part == "What each injects":
    instead = columns.schemes(together)
    effects = {kind: together.effects(kind, instead) for kind in KINDS}
    nothing = [names[k] for k in range(len(names)) if not any(k in found for found in effects.values())]
    count, head = together.heads(pair for found in effects.values() for pair in found.values()), None
    for kind, title in KINDS.items():
        if not effects[kind]:
            continue
        with kit.panel(title, wide=True) as panel:
            if count and head is None and kind in (Bias, Content):
                with kit.columns([1, 4])[0]:
                    head = kit.number("Head", key="head", high=count - 1)
            seen = together.injected(effects[kind], head or 0, instead)
            if seen.figure is None:
                kit.sentences(
                    "Its scores depend on the content too: there is no bias of positions alone to lay beside others."
                )
            else:
                together.show(seen.figure, f"injected-{kind.__name__.lower()}", code=seen.code)
            said = set()
            for k, (scheme, effect) in effects[kind].items():
                if scheme in SCHEMES and scheme not in said:
                    said.add(scheme)
                    name, positions = together.named(k, instead[k][0]), together.columns[k].page.positions
                    notice = SCHEMES[scheme].notice(effect, positions)[:2]
                    panel.say(*(f"{name}: {line}" for line in notice), formula=SCHEMES[scheme].FORMULA)
    if nothing:
        kit.sentences(f"Nothing enters from position in {', '.join(nothing)}: there is no tensor to show.")

elif part == "Similarity":
    with kit.panel(f"Cosine similarity of the text's {unit}s, as they enter the first block", wide=True) as panel:
        seen = together.picture(
            together.similarities,
            "tinput.measure.cosine(tinput.align.pool(traces[k].block_input.flatten(1), ranges[k]))",
            minus=difference(),
            value_title="cosine similarity",
            limits=(-1.0, 1.0),
            scale="diverging",
        )
        if seen.figure is not None:
            together.show(seen.figure, "similarities", code=seen.code)
        if len(names) > 2:
            kit.html(together.correlation_table())
        panel.say(
            *together.correlated(),
            formula=r"r = \frac{\sum_{i<j}(a_{ij}-\bar a)(b_{ij}-\bar b)}"
            r"{\sqrt{\sum_{i<j}(a_{ij}-\bar a)^2 \sum_{i<j}(b_{ij}-\bar b)^2}}",
            note=("A part of several tokens stands with the mean of their vectors. " if unit == "part" else "")
            + "The correlation leaves the diagonal out (Kriegeskorte et al. 2008).",
        )

elif part == "Norms":
    with kit.panel(f"The length of each {unit}'s vector", wide=True) as panel:
        norms = together.norms
        figure = figures.lines(norms, x_title=unit, y_title="L2 norm", labels=together.part_labels, large=large)
        together.show(
            figure,
            "compare-norms",
            code="sizes = [tinput.measure.norms(trace.block_input.flatten(1)) for trace in traces]\n"
            "norms = {names[k]: tinput.align.pool(sizes[k], ranges[k]) for k in range(len(models))}\n"
            f"tinput.figures.lines(norms, x_title={unit!r}, y_title='L2 norm', labels=labels)",
        )
        means = [f"{name} {float(line.nanmean()):.3g}" for name, line in norms.items()]
        panel.say(
            f"On average: {', '.join(means)}.",
            formula=r"\|x\|_2=\sqrt{\textstyle\sum_i x_i^2}",
            note=("The mean of a part's tokens. " if unit == "part" else "")
            + "Widths may differ: a wider vector of equal values is longer.",
        )

elif part == "Spectra":
    with kit.panel("In how many directions the tokens spread", wide=True) as panel:
        spectra = together.spectra
        if not spectra:
            kit.sentences("Vectors that are all equal spread in no direction: type more of a sentence.")
        else:
            figure = figures.lines(
                spectra,
                {name: range(1, len(values) + 1) for name, values in spectra.items()},
                x_title="direction",
                y_title="singular value / largest",
                log_y=True,
                large=large,
            )
            together.show(
                figure,
                "spectra",
                code="values = [tinput.measure.singular_values(trace.block_input.flatten(1)) for trace in traces]\n"
                "values = [each[each > 1e-6 * each[0]] / each[0] for each in values]\n"
                "tinput.figures.lines({names[k]: values[k] for k in range(len(models)) if len(values[k])}, log_y=True)",
            )
            ranks = [f"{name} {measure.rank_for(values)}" for name, values in spectra.items()]
            panel.say(
                f"Directions that hold 90 % of the variance: {', '.join(ranks)}.",
                formula=r"X - \bar x = U\,\mathrm{diag}(\sigma)\,V^\top",
                note="Singular values of the block input, the mean token taken away, each model's over its largest; "
                "what is below a millionth of it is rounding, and left out.",
            )

else:
    with kit.panel(f"Attention in the first layer, from {unit} to {unit}", wide=True) as panel:
        head = columns.heads(together)
        which = ".tensor().mean(0)" if head is None else f"[{head}].tensor()"
        weights = together.weights(head)
        together.offer_attention()
        seen = together.picture(
            weights,
            f"tinput.align.pool_weights(traces[k].attention.weights{which}, ranges[k],\n"
            "                                      traces[k].attention.mask[0].tensor())",
            minus=difference(),
            value_title="attention weight",
            row_title="query",
            column_title="key",
            scale="sequential",
            quantile=1.0 if together.stop - together.first <= 64 else 0.995,
        )
        if seen.figure is not None:
            together.show(seen.figure, "compare-weights", code=seen.code)
        panel.say(
            ""
            if seen.figure is None
            else "The mean of all heads of each model."
            if head is None
            else f"Head {head} of each: heads of two models with one number have nothing in common but the number.",
            *together.without_attention(weights),
            formula=r"w = \mathrm{softmax}\!\left(\tfrac{q k^\top}{\sqrt d} + \text{bias}\right)",
            note="To a part: the sum over its tokens; from a part: the mean. So each row still sums to 1 "
            "(Clark et al. 2019). Blank: what the mask hides, and parts that a model has no token for."
            if unit == "part"
            else "Blank: what the mask hides.",
        )
