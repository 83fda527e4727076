"""How does each head pay less attention to what is farther away?"""

from tinput import figures
from tinput.positions import alibi
from tinput.ui import given, injected, kit

page = kit.start("How does each head pay less attention to what is farther away?", about=alibi)
trace, large, seq = page.trace, kit.large(), page.seq
LINES = "from tinput import figures, measure\nfrom tinput.positions import alibi\n\n"

part = kit.choose("Look at", ["Bias", "Slopes", "Attention weights", "Reach"], key="slope")
slopes = given.slopes(page, alibi)
count = len(slopes)
names = [f"head {i}" for i in range(count)]
causal = given.is_causal(page)


def bias_of(symmetric: bool) -> tuple:
    """The bias, and how code names it."""
    what_if = alibi.field(slopes, seq, seq, symmetric=symmetric)
    heads = given.heads(page, alibi, what_if, force=symmetric and causal)
    if heads.own:
        return heads, "trace.attention.bias"
    return heads, f"alibi.field(alibi.slopes({count}), len(trace.ids), len(trace.ids), symmetric={symmetric})"


if part == "Bias":
    with kit.panel("What each head adds to its scores") as panel:
        form = kit.choose("Form", ["As it is added", "By distance", "Symmetric"], key="form")
        first = kit.number("First head shown", key="from", high=max(0, count - 1)) if count > 8 else 0
        heads, name = bias_of(form == "Symmetric")
        shown, masked = heads.window(first, 8, relative=form == "By distance")
        figure = figures.panels(
            shown,
            names[first : first + 8],
            page.labels,
            page.labels,
            value_title="bias",
            masked=masked,
            note="recorded from the model" if heads.own else "what-if: from the formula",
            large=large,
        )
        hide = "\nmasked = trace.attention.mask.window(cells=64).values[0] < 0" if masked is not None else ""
        code = (
            f"{LINES}bias = {name}.window(cells=64){hide}\n"
            f"figures.panels(bias, [f'head {{i}}' for i in range({count})]{', masked=masked' if hide else ''})"
        )
        page.show(figure, "bias", code=code)
        said = {
            "As it is added": "This is what the model adds, in the form in which it adds it."
            if heads.own
            else "This is what the paper's form would add to the model's scores."
            if causal
            else "The paper's form is for models that look back alone: in one that looks both ways, as this one, it "
            "would favour what is ahead. For those there is the symmetric form.",
            "By distance": "The same with each row's own key at 0: a constant in a row is removed by softmax, "
            "so the weights are equal.",
            "Symmetric": "For attention in both directions: what is ahead costs as much as what is behind.",
        }[form]
        panel.say(
            said,
            "All heads share one scale of colours, so that a small slope stays pale: see Slopes.",
            *(alibi.notice(heads.near(), page.positions)[:2] if seq > 1 and form != "Symmetric" else ()),
            formula=alibi.FORMULA,
            note=alibi.PAPER,
        )

elif part == "Slopes":
    with kit.panel("One slope a head") as panel:
        figure = figures.bars(
            slopes, names, x_title="head", y_title="slope", colour=alibi.COLOUR, log_y=True, large=large
        )
        code = (
            f"{LINES}slopes = alibi.slopes({count})\n"
            f"figures.bars(slopes, range({count}), x_title='head', y_title='slope', log_y=True)"
        )
        page.show(figure, "slopes", code=code)
        power = count & (count - 1) == 0
        panel.say(
            f"{count} heads: from {float(slopes.max()):.3g} (looks near) to {float(slopes.min()):.3g} (looks far).",
            "Each slope is a fixed part of the one before; nothing here is learned."
            if power
            else f"{count} is no power of two: the slopes of the next smaller power come first, then some between. "
            "They are not sorted, and sorting them would change the model.",
            formula=r"m_h = 2^{-8(h+1)/H}, \quad h = 0, \dots, H - 1",
            note=alibi.PAPER,
        )

elif part == "Attention weights":
    with kit.panel("Attention with and without the bias") as panel:
        head = kit.number("Head", key="head", high=count - 1)
        heads, name = bias_of(symmetric=not causal)
        if compared := injected.show_weights(page, head, heads, LINES, name):
            panel.say(
                compared,
                f"Its slope is {float(slopes[head]):.3g}: each token farther away costs that much of the score, "
                f"and divides the weight by {float(slopes[head].exp()):.3g}.",
                formula=r"w = \mathrm{softmax}\!\left(\tfrac{q k^\top}{\sqrt d} - m_h\,|q - k|\right)",
            )

else:
    with kit.panel("Where a head's weight has fallen to 1 %") as panel:
        reach = alibi.reach(slopes)
        levels = [(seq, f"this text, {seq:,} tokens")] if seq > 1 else []
        context = given.context(page)
        levels += [(context, f"context, {context:,} tokens")] if context else []
        figure = figures.bars(
            reach,
            names,
            x_title="head",
            y_title="distance (tokens)",
            colour=alibi.COLOUR,
            levels=levels,
            log_y=True,
            large=large,
        )
        code = f"{LINES}reach = alibi.reach(alibi.slopes({count}))\nfigures.bars(reach, range({count}), log_y=True)"
        page.show(figure, "reach", code=code)
        near, far = float(reach.min()), float(reach.max())
        within = int((reach < seq).sum())
        panel.say(
            f"With equal scores, a key's weight is down to 1 % of the nearest one's after {near:,.1f} tokens in the "
            f"steepest head, after {far:,.0f} in the flattest.",
            f"In this text of {seq:,} tokens, {within} of {count} heads fall that far.",
            formula=r"e^{-m_h\,\Delta} = 0.01 \;\Rightarrow\; \Delta = \frac{\ln 100}{m_h}",
        )
