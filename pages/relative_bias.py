"""What does the model add to a score for each distance?"""

from tinput import figures
from tinput.positions import relative_bias
from tinput.ui import given, injected, kit

page = kit.start("What does the model add to a score for each distance?")
trace, large, seq = page.trace, kit.large(), page.seq
found = given.buckets(page, relative_bias)
table = found.table
LINES = "import torch\nfrom tinput import figures, measure\nfrom tinput.positions import relative_bias\n\n"
page.what_if(relative_bias, "" if found.own else found.source)

if found.own:
    TABLE = f"table = model.table_rows(trace.effects[-1].table, torch.arange({found.num_buckets}))\n"
else:
    TABLE = (
        f"learned = tinput.open_model({found.source!r})\n"
        "name = learned.trace('a').effects[-1].table\n"
        f"table = learned.table_rows(name, torch.arange({found.num_buckets}))\n"
    )

part = kit.choose("Look at", ["Bias by distance", "Buckets", "Bias of this text", "Attention weights"], key="bucket")
REACH = {"near": 32, "up to the last bucket": found.max_distance, "beyond": 2 * found.max_distance}


def distances() -> tuple:
    """A choice of distances, the bucket of each, and the lines of code that make both."""
    farthest = REACH[kit.choose("Distances", list(REACH), key="reach", default="up to the last bucket")]
    steps = given.distances(farthest, found.bidirectional)
    sizes = {"num_buckets": found.num_buckets, "max_distance": found.max_distance}
    index = relative_bias.buckets(steps, bidirectional=found.bidirectional, **sizes)
    code = (
        f"distance = torch.arange({-farthest}, {farthest + 1 if found.bidirectional else 1})\n"
        f"index = relative_bias.buckets(distance, bidirectional={found.bidirectional}, "
        f"num_buckets={found.num_buckets}, max_distance={found.max_distance})\n"
    )
    return steps, index, code


if part != "Buckets" and table is None:
    kit.sentences("The bias is learned, and no model with one is at hand: choose the Buckets, which are a formula.")

elif part == "Bias by distance" and table is not None:
    with kit.panel("The learned bias of each head, by distance") as panel:
        count = table.shape[1]
        steps, index, made = distances()
        first = kit.number("First head shown", key="from", high=max(0, count - 1)) if count > 8 else 0
        values = relative_bias.bias(table, index[None])[:, 0]
        figure = figures.lines(
            {f"head {i}": values[i] for i in range(first, min(first + 8, count))},
            steps,
            x_title="key's position minus query's (tokens)",
            y_title="bias",
            points=False,
            note=f"from {found.source}",
            large=large,
        )
        code = (
            f"{LINES}{made}{TABLE}"
            "figures.lines({f'head {i}': table[index, i] for i in range(table.shape[1])}, distance)"
        )
        page.show(figure, "bias-by-distance", code=code)
        spread = values.max(1).values - values.min(1).values
        head = int(spread.argmax())
        best = int(steps[int(values[head].argmax())])
        where = f"{abs(best)} {'token' if abs(best) == 1 else 'tokens'} {'ahead' if best > 0 else 'back'}"
        panel.say(
            f"Head {head} tells distances apart most: its bias goes from {float(values[head].min()):.2f} to "
            f"{float(values[head].max()):.2f}, highest {where}.",
            "A step of 1 in the bias multiplies a weight by 2.72.",
            "Flat stretches are distances that share one bucket, and so one number.",
            formula=relative_bias.FORMULA,
            note=relative_bias.PAPER,
        )

elif part == "Buckets":
    with kit.panel("Which bucket a distance falls into") as panel:
        steps, index, made = distances()
        figure = figures.lines(
            {"bucket": index},
            steps,
            x_title="key's position minus query's (tokens)",
            y_title="bucket",
            colours=[relative_bias.COLOUR],
            points=len(steps) <= 65,
            large=large,
        )
        code = f"{LINES}{made}figures.lines({{'bucket': index}}, distance)"
        page.show(figure, "buckets", code=code)
        side = found.num_buckets // 2 if found.bidirectional else found.num_buckets
        panel.say(
            f"{found.num_buckets} buckets: "
            + ("half for keys behind, half for keys ahead. " if found.bidirectional else "all for keys behind. ")
            + f"The nearest {side // 2} distances have one each.",
            f"Farther ones share, and from {found.max_distance} tokens on all are in one: the model cannot tell "
            "these apart.",
            "So a text may be longer than any seen in training, and nothing breaks.",
            formula=r"b(\Delta) = \tfrac{B}{2} + \left\lfloor \frac{\ln(\Delta / \tfrac{B}{2})}"
            r"{\ln(\Delta_{\max} / \tfrac{B}{2})} \cdot \tfrac{B}{2} \right\rfloor",
            note=relative_bias.PAPER,
        )

elif table is not None:
    what_if = relative_bias.field(table, seq, seq, bidirectional=found.bidirectional, max_distance=found.max_distance)
    heads = given.heads(page, relative_bias, what_if)
    count = heads.field.shape[0]
    names = [f"head {i}" for i in range(count)]
    made, name = (
        ("", "trace.attention.bias")
        if heads.own
        else (
            f"{TABLE}seq = len(trace.ids)\nadded = relative_bias.field(table, seq, seq, "
            f"bidirectional={found.bidirectional}, max_distance={found.max_distance})\n",
            "added",
        )
    )
    if part == "Bias of this text":
        with kit.panel("What each head adds to the scores of this text") as panel:
            first = kit.number("First head shown", key="from", high=max(0, count - 1)) if count > 8 else 0
            shown, masked = heads.window(first, 8)
            figure = figures.panels(
                shown,
                names[first : first + 8],
                page.labels,
                page.labels,
                value_title="bias",
                masked=masked,
                note="recorded from the model" if heads.own else f"what-if: from {found.source}",
                large=large,
            )
            hide = masked is not None
            code = (
                f"{LINES}{made}bias = {name}.window(cells=64)\n"
                + ("masked = bias.columns[None, :] > bias.rows[:, None]  # later keys\n" if hide else "")
                + "figures.panels(bias, [f'head {i}' for i in range(len(bias.values))]"
                + (", masked=masked)" if hide else ")")
            )
            page.show(figure, "bias", code=code)
            panel.say(
                *relative_bias.notice(heads.last(), page.positions),
                "Every diagonal has one colour: only the distance counts.",
                formula=relative_bias.FORMULA,
                note=relative_bias.PAPER,
            )
    else:
        with kit.panel("Attention with and without the bias") as panel:
            head = kit.number("Head", key="head", high=count - 1)
            if compared := injected.show_weights(page, head, heads, LINES + made, name):
                panel.say(
                    compared,
                    "The rest of the difference between the two pictures is the model's own q and k.",
                    formula=r"w = \mathrm{softmax}\!\left(q k^\top + b_{\mathrm{bucket}(k-q)}\right)",
                )
