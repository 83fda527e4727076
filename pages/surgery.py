"""What happens to attention if positions are changed?"""

from tinput import figures
from tinput.ui import columns, given, kit, surgery

page = kit.start("What happens to attention if positions are changed?")
attention = page.trace.attention
if attention is None:
    kit.stop(
        f"There is no attention to change in {page.name}: {page.trace.attention_reason}.",
        "Choose a model with attention at the left, such as tinput/rope.",
    )
LINES = "import torch\nfrom tinput import figures, surgery\n\n"
VIEWS = {
    "Weights": ("weights", "attention weight", "sequential"),
    "Scores": ("scores", "score", "diverging"),
}

kind = kit.choose("Change", surgery.CUTS, key="cut")
with kit.panel("Attention before, after, and the difference", wide=True) as panel:
    wide = kind in surgery.WIDE
    if wide:
        cut = surgery.controls(page, kind)
    first, second, third = kit.columns([4, 3, 3])
    if not wide:
        with first:
            cut = surgery.controls(page, kind)
    with first if wide else second:
        what, value, scale = VIEWS[kit.choose("Show", list(VIEWS), key="of")]
    with second if wide else third:
        head = kit.number("Head", key="head", high=attention.heads - 1)
    surgery.band(cut)
    change = surgery.change(page, cut)
    seen = surgery.measured(page, cut, change, head)
    quantile = given.weights_quantile(page) if what == "weights" else 1.0
    figure = figures.before_after(
        *(change.weights(head) if what == "weights" else change.scores(head)),
        page.labels,
        page.labels,
        value_title=value,
        scale=scale,
        quantile=quantile,
        dtype=page.trace.dtype,
        note=f"layer {attention.layer}, head {head}",
        large=kit.large(),
    )
    bare = "" if cut.masked else "before, after = surgery.unmasked(before), surgery.unmasked(after)\n"
    page.show(
        figure,
        "surgery",
        code=f"{LINES}before = trace.attention\n{cut.code}{bare}"
        f"change = surgery.Change(before, after)\n"
        f"figures.before_after(*change.{what}({head}), labels, labels, value_title={value!r}, scale={scale!r})",
    )
    columns.link()
    panel.say(
        *surgery.law(page, cut, seen, head, change.step),
        surgery.by_head(seen),
        formula=r"w = \mathrm{softmax}(\mathrm{scale}\; q\,k^\top + \mathrm{bias} + \mathrm{mask})",
        note="Rows and columns are the tokens in the text's own order. The mask goes by place in the text, not by "
        "position: it stays as it is, and what it hides is blank.",
    )
