"""How do sines and cosines say where a token stands?"""

from tinput import figures, measure
from tinput.positions import sinusoidal
from tinput.ui import given, kit

page = kit.start("How do sines and cosines say where a token stands?", about=sinusoidal)
large = kit.large()
LAYOUTS = {
    "own": "",
    "interleaved": "interleaved",
    "halves": "halves",
    "Whisper's": "whisper",
    "MusicGen's": "musicgen",
}
LAID_OUT = {
    "interleaved": "Layout: interleaved, a pair's sine and cosine side by side.",
    "halves": "Layout: halves, all sines first, then all cosines.",
    "whisper": "Layout: Whisper's, sines first, then cosines; the last pair is the base times slower than the first.",
    "musicgen": "Layout: MusicGen's, cosines first, then sines; the last pair is the base times slower than the first.",
}
BASES = {"10,000": 10_000.0, "100": 100.0, "1,000,000": 1_000_000.0}
WIDTHS = {"own": 0, "16": 16, "256": 256}

part = kit.choose("Look at", ["Vectors", "Wavelengths", "Similarity", "With the embedding"], key="waves")
left, middle, right = kit.columns([16, 9, 7])
with left:
    layout = kit.choose("Layout", LAYOUTS, key="layout")
with middle:
    base = BASES[kit.choose("Base", list(BASES), key="base")]
with right:
    width = WIDTHS[kit.choose("Width", list(WIDTHS), key="width")]
found = given.vectors(page, sinusoidal, layout, base, width)
plan = found.layout
seq, wide = found.added.shape
source = "recorded from the model" if found.own else "what-if: from the formula"

if found.own:
    values = "trace.effect.vectors"
    lines = "from tinput import figures, measure\nfrom tinput.positions import sinusoidal\n\n"
else:
    settings = f"base={base:g}, layout={plan!r}"
    values = "vectors"
    lines = (
        "import torch\nfrom tinput import figures, measure\nfrom tinput.positions import sinusoidal\n\n"
        f"vectors = sinusoidal.table(torch.arange(len(trace.ids)), {wide}, {settings})\n"
    )
frequencies = f"sinusoidal.frequencies({wide}, {base:g}, {plan!r})"
turns = measure.wavelengths(found.frequencies)
fastest, slowest = float(turns[0]), float(turns[-1])

if part == "Vectors":
    with kit.panel("What each position adds, dimension by dimension") as panel:
        figure = figures.heatmap(
            found.added, page.labels, positions=page.place, limits=(-1, 1), scale="diverging", note=source, large=large
        )
        code = f"{lines}figures.heatmap({values}, trace.tokens.labels, limits=(-1, 1))"
        page.show(figure, "sinusoids", code=code)
        panel.say(
            "Read a column downwards: a wave. Read a row: the one vector that says this position.",
            *sinusoidal.notice(page.trace.effect if found.own else sinusoidal.Add(found.added), page.positions),
            LAID_OUT[plan],
            formula=sinusoidal.formula(base, plan),
            note=sinusoidal.PAPER,
        )

elif part == "Wavelengths":
    with kit.panel("How many tokens each pair needs for a full turn") as panel:
        context = given.context(page)
        levels = [(seq, f"this text, {seq:,} tokens")]
        levels += [(context, f"context, {context:,} tokens")] if context and context != seq else []
        figure = figures.lines(
            {"wavelength": turns},
            x_title="pair",
            y_title="wavelength (tokens)",
            colours=[sinusoidal.COLOUR],
            levels=levels,
            log_y=True,
            note=source,
            large=large,
        )
        code = (
            f"{lines}wavelengths = measure.wavelengths({frequencies})\n"
            "figures.lines({'wavelength': wavelengths}, x_title='pair', y_title='wavelength (tokens)', log_y=True)"
        )
        page.show(figure, "wavelengths", code=code)
        turned = int((turns <= seq).sum())
        panel.say(
            f"The fastest pair turns once in {fastest:.2f} tokens, the slowest once in {slowest:,.0f}.",
            f"Within this text of {seq:,} tokens, {turned} of {len(found.frequencies)} pairs make a full turn; the "
            "others move slowly enough to tell early from late.",
            formula=rf"\lambda_i = 2\pi \cdot {sinusoidal.exponent(base, plan)}",
        )

elif part == "Similarity":
    with kit.panel("How alike two positions are, by their distance") as panel:
        view = kit.choose("Show", ["By distance", "All pairs"], key="alike")
        cosine = measure.cosine(found.added)
        read = measure.by_distance(cosine)
        if view == "By distance":
            formula = measure.mean_cosine(found.frequencies, read.distance)
            figure = figures.lines(
                {"these vectors": read.mean, "formula": formula},
                read.distance,
                x_title="distance (tokens)",
                y_title="cosine similarity",
                bands={"these vectors": (read.low, read.high)},
                colours=[sinusoidal.COLOUR, kit.GREY],
                dashes=["solid", "dot"],
                note=source,
                large=large,
            )
            code = (
                f"{lines}read = measure.by_distance(measure.cosine({values}))\n"
                f"formula = measure.mean_cosine({frequencies}, read.distance)\n"
                "figures.lines({'these vectors': read.mean, 'formula': formula}, read.distance,\n"
                "              bands={'these vectors': (read.low, read.high)}, dashes=['solid', 'dot'])"
            )
        else:
            figure = figures.similarity(cosine, page.labels, positions=page.place, note=source, large=large)
            code = f"{lines}figures.similarity(measure.cosine({values}), trace.tokens.labels)"
        page.show(figure, "position-similarity", code=code)
        near = f"One token apart: {float(read.mean[1]):.3f}. " if len(read.mean) > 1 else ""
        panel.say(
            f"{near}Farthest apart here, {int(read.distance[-1]):,} tokens: {float(read.mean[-1]):.3f}.",
            "It depends on the distance alone, not on where the two stand: moving both changes nothing.",
            formula=r"c_{p,q} = \tfrac{2}{d}\sum_i \cos((p-q)\,\omega_i),"
            rf"\quad \omega_i = 1 / {sinusoidal.exponent(base, plan)}",
        )

else:
    with kit.panel("The token's vector, the position's, and their sum") as panel:
        token, total = found.token, found.sum
        if token is None or total is None:
            kit.sentences(
                f"The vectors are {wide:,} wide and the model's embedding is not: set the width to the model's "
                "to see the sum."
            )
        else:
            figure = figures.panels(
                [token, found.added, total],
                ["token", "position", "sum"],
                page.labels,
                row_title="token",
                column_title="dimension",
                across=3,
                dtype=page.trace.dtype,
                note=source,
                large=large,
            )
            before = "trace.stages[-1].value - trace.effect.vectors" if found.own else "trace.block_input"
            code = (
                f"{lines}position, token = {values}, {before}\n"
                "figures.panels([token, position, token + position], ['token', 'position', 'sum'])"
            )
            page.show(figure, "sum", code=code)
            share = measure.shares(token, found.added)
            panel.say(
                f"Mean length of the token's part {float(measure.norms(token).mean()):.3g}, of the position's "
                f"{float(measure.norms(found.added).mean()):.3g}.",
                f"The position is {float(share.position.mean()):.0%} of the squared length of the sum, on average.",
                "All three share one colour scale.",
                formula=r"x_p = \mathrm{embedding}(t_p) + \mathrm{PE}_p",
            )
