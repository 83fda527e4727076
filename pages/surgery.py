"""What happens to attention if positions are changed?"""

from tinput import figures
from tinput.surgery import program
from tinput.ui import columns, cuts, given, kit, surgery

page = kit.start("What happens to attention if positions are changed?")
attention = page.trace.attention
LINES = "import torch\nfrom tinput import figures, surgery\n\n"
VIEWS = {
    "Weights": ("weights", "attention weight", "sequential"),
    "Scores": ("scores", "score", "diverging"),
}

part = kit.choose("Look at", ["Attention, changed", "Where a value came from"], key="look")

if part == "Attention, changed":
    if attention is None and page.offers_attention():
        kit.stop()
    if attention is None:
        kit.stop(
            f"There is no attention to change in {page.name}: {page.trace.attention_reason}.",
            "Choose a model with attention at the left, such as tinput/rope; or look at where a value came from.",
        )
    kind = kit.choose("Change", cuts.CUTS, key="cut")
    with kit.panel("Attention before, after, and the difference", wide=True) as panel:
        wide = kind in cuts.WIDE
        if wide:
            cut = cuts.controls(page, kind)
        first, second, third = kit.columns([4, 3, 3])
        if not wide:
            with first:
                cut = cuts.controls(page, kind)
        with first if wide else second:
            what, value, scale = VIEWS[kit.choose("Show", list(VIEWS), key="of")]
        with second if wide else third:
            head = kit.number("Head", key="head", high=attention.heads - 1)
        change = surgery.change(page, cut)
        seen = surgery.measured(page, cut, change, head)
        surgery.band(cut, surgery.law(page, cut, seen, head, change.step))
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
            surgery.by_head(seen),
            formula=r"w = \mathrm{softmax}(\mathrm{scale}\; q\,k^\top + \mathrm{bias} + \mathrm{mask})",
            note=surgery.mask_note(cut, before=attention),
        )

else:
    with kit.panel("From bytes to one value", wide=True) as panel:
        kinds = {"Block input": "input"} | ({} if attention is None else {"Attention weight": "weight"})
        what = kit.choose("Value", kinds, key="value")
        links = surgery.followed(page, what)
        page.table(
            surgery.links_table(links),
            "chain",
            code=f"import torch\nfrom tinput import surgery\n\n{program(links)}",
        )
        read = [link.name for link in links if link.read]
        panel.say(
            f"The value is {links[-1].value:.6g}. Each formula was worked out here, and gives what was recorded.",
            f"Read off the recording, for want of a formula: {', '.join(read)}." if read else "",
            "The Python under the table goes through the same steps, one after the other.",
            note=page.dtype_note,
        )
