"""What happens to a text before the first block?"""

from tinput import figures, measure
from tinput.positions import SCHEMES, Add
from tinput.ui import kit, whatif, words

page = kit.start("What happens to a text before the first block?")
trace, large = page.trace, kit.large()
schemes = [SCHEMES[name] for name in page.model.schemes if name in SCHEMES]
norms = [i for i, stage in enumerate(trace.stages) if stage.role == "norm"]

before, inside, marked, possible = words.path_of(schemes, norm=bool(norms))
with kit.panel("Where position enters") as panel:
    colour = next((scheme.COLOUR for scheme in schemes), kit.GREY)
    figure = figures.path(before, marked, colour, inside=inside, possible=possible, large=large)
    page.show(
        figure,
        "path",
        code="from tinput.ui.words import path_of\n\n"
        "schemes = [tinput.SCHEMES[name] for name in model.schemes]\n"
        "before, inside, marked, possible = path_of(schemes, norm=any(s.role == 'norm' for s in trace.stages))\n"
        "tinput.figures.path(before, marked, schemes[0].COLOUR, inside=inside, possible=possible)",
    )
    count, width = page.seq, page.matrix(trace.block_input).shape[-1]
    panel.say(
        f"{'Shown of the text: its first' if page.cut else 'The text becomes'} "
        f"{f'{count:,} tokens, each' if count > 1 else '1 token,'} a vector of {width:,} numbers.",
        page.model.reason,
        formula=schemes[0].FORMULA if schemes else "",
        note="Filled: where position enters. Dashed: where other schemes enter.",
    )

part = kit.choose("Look at", ["Stages", "Token and position", "Layer norm", "Dropout"], key="part")

if part == "Stages":
    with kit.panel("The recorded steps, first to last") as panel:
        last = "block input"
        options = {f"{i + 1} · {stage.name}": i for i, stage in enumerate(trace.stages)}
        chosen = kit.choose("Step", [*options, last], key="stage", default=last)
        index = options.get(chosen, len(trace.stages) - 1)
        stage = trace.stages[index]
        recorded = trace.block_input if chosen == last else stage.value
        values = page.matrix(recorded)
        code = "trace.block_input" if chosen == last else f"trace.stages[{index}].value"
        rows = page.rows(values)
        view = kit.choose("Show", ["Values", "Norms"], key="show")
        sizes = measure.norms(values)
        if view == "Values":
            figure = figures.heatmap(values, rows, positions=page.place, dtype=trace.dtype, large=large)
            page.show(figure, "stage", code=f"tinput.figures.heatmap({code}.flatten(1), labels)")
        else:
            figure = figures.bars(sizes, rows, y_title="L2 norm", positions=page.place, large=large)
            page.show(
                figure,
                "stage-norms",
                code=f"tinput.figures.bars(tinput.measure.norms({code}), labels)",
            )
        if chosen == last:
            said = f"What enters the first block: one vector of {values.shape[-1]:,} numbers for each token."
            panel.say(said, formula=r"x \in \mathbb{R}^{\mathrm{seq} \times d_\mathrm{model}}")
        else:
            panel.say(words.does(stage), formula=stage.formula)
        panel.say(
            f"{words.shape(recorded)} numbers. {words.extremes(page.labels, sizes)}",
            note=f"Recorded as the operation {stage.op}"
            + (f" in the module {stage.module}" if stage.module else "")
            + (f", {stage.note}" if stage.note else "")
            + f". {page.dtype_note}",
        )
    with kit.details("All steps in a table, and the versions that they were recorded with"):
        kit.html(words.steps_table(trace.stages))
        kit.note(*(f"{name}: {value}" for name, value in page.source.items()))

elif part == "Token and position":
    with kit.panel("How much of the result is token, how much position") as panel:
        added = page.effect_of(Add)
        total = next((stage for stage in reversed(trace.stages) if stage.role == "sum"), None)
        if added is None or total is None or added.vectors.shape != total.value.shape:
            nothing = "Nothing that depends on position is added before the first block: all of each vector is token."
            kit.sentences(
                nothing, "Choose tinput/sinusoidal or tinput/learned at the left to see the two mixed.", paper=nothing
            )
        else:
            shares = vars(measure.shares(total.value - added.vectors, added.vectors))
            figure = figures.stacked(shares, page.labels, positions=page.place, large=large)
            page.show(
                figure,
                "shares",
                code="total = [stage for stage in trace.stages if stage.role == 'sum'][-1].value\n"
                "shares = tinput.measure.shares(total - trace.effect.vectors, trace.effect.vectors)\n"
                "tinput.figures.stacked(vars(shares), labels)",
            )
            mean = {name: float(share.mean()) for name, share in shares.items()}
            panel.say(
                f"On average over this text, the token is {mean['token']:.0%} of the squared length and the position "
                f"{mean['position']:.0%}.",
                "The cross term is what the two have in common: near 0 where they stand at right angles, so that "
                "a model can read one apart from the other.",
                formula=r"\|t+p\|^2 = \|t\|^2 + \|p\|^2 + 2\,t\cdot p",
            )

elif part == "Layer norm":
    with kit.panel("Before and after the norm") as panel:
        if not norms:
            kit.sentences(
                "This model does not normalise before its first block: the norm is the first step inside it "
                "(pre-norm), so the residual stream starts with the sum as it is.",
            )
        else:
            index = norms[0]
            stage, source = trace.stages[index], trace.stages[trace.stages[index].inputs[0]]
            view = kit.choose("Show", ["Values", "Mean and spread"], key="norm")
            lines = f"before, after = trace.stages[{stage.inputs[0]}].value, trace.stages[{index}].value\n"
            if view == "Values":
                figure = figures.panels(
                    [source.value, stage.value],
                    ["before", "after"],
                    page.labels,
                    row_title="token",
                    column_title="dimension",
                    across=2,
                    large=large,
                )
                code = lines + "tinput.figures.panels([before, after], ['before', 'after'])"
            else:
                spread = {"before": source.value.std(-1), "after": stage.value.std(-1)}
                figure = figures.lines(
                    spread, x_title="token", y_title="standard deviation", labels=page.labels, large=large
                )
                code = lines + (
                    "spread = {'before': before.std(-1), 'after': after.std(-1)}\n"
                    "tinput.figures.lines(spread, x_title='token', labels=labels)"
                )
            page.show(figure, "norm", code=code)
            was, now = source.value.std(-1), stage.value.std(-1)
            panel.say(
                words.does(stage),
                f"The spread of a token's values was {was.min():.3g} to {was.max():.3g}, and is now "
                f"{now.min():.3g} to {now.max():.3g}: a token that was long is no longer louder than the others.",
                formula=stage.formula,
            )

else:
    with kit.panel("Dropout: what training would do to the block input") as panel:
        own = [stage for stage in trace.stages if stage.role == "dropout"]
        left, right = kit.columns(2)
        with left:
            p = kit.slider("p, the chance of a value to be set to 0", 0.0, 0.9, key="p", default=0.1, step=0.05)
        with right:
            seed = kit.number("Seed", key="seed", default=0, high=9_999)
        dropped = whatif.dropout(page.matrix(trace.block_input), p, seed)
        figure = figures.heatmap(
            dropped,
            page.rows(dropped),
            positions=page.place,
            masked=dropped == 0,
            dtype=trace.dtype,
            note="a what-if: the trace itself has no dropout",
            large=large,
        )
        page.show(
            figure,
            "dropout",
            code="from tinput.ui.whatif import dropout\n\n"
            f"dropped = dropout(trace.block_input.flatten(1), {p}, seed={seed})\n"
            "tinput.figures.heatmap(dropped, labels, masked=dropped == 0)",
        )
        panel.say(
            *(
                f"The model has a dropout on the way ({stage.note or stage.name}): off in eval mode, as here."
                for stage in own[:1]
            ),
            f"What if: with p = {p:g} and seed {seed}, {float((dropped == 0).float().mean()):.1%} of the values are 0.",
            "What is left is divided by 1 − p, so that the expected value stays. The same seed drops the same values.",
            formula=r"y = \frac{m \odot x}{1-p},\quad m_i \sim \mathrm{Bernoulli}(1-p)",
        )
