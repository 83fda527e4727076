"""What has the model learned about its positions?"""

from tinput import figures, measure
from tinput.positions import learned, sinusoidal
from tinput.ui import given, kit
from tinput.window import Window

page = kit.start("What has the model learned about its positions?")
large = kit.large()
table = given.table(page, learned)
if table is None:
    page.what_if(learned)
    kit.stop("The table is learned, and no model with one is at hand: choose a model that has one.")
page.what_if(learned, "" if table.own else table.source)
rows, places = table.rows, table.positions
size, width = rows.shape
which = (page.key if table.own else table.source, table.name, table.size, width)
waves = sinusoidal.table(places, width)
own, other = "learned", "sinusoids"
COLOURS = [learned.COLOUR, sinusoidal.COLOUR]

LINES = "import torch\nfrom tinput import figures, measure\nfrom tinput.positions import sinusoidal\n\n"
if table.own:
    LINES += (
        "name = next(found.table for found in trace.effects if found.table)\n"
        f"positions = torch.arange(0, {table.size}, {table.step})\n"
        f"rows = model.table_rows(name, positions + {table.first})\n"
    )
else:
    LINES += (
        f"other = tinput.open_model({table.source!r})\n"
        "name = next(found.table for found in other.trace('a').effects if found.table)\n"
        f"positions = torch.arange(0, {table.size}, {table.step})\n"
        "rows = other.table_rows(name, positions)\n"
    )
LINES += f"waves = sinusoidal.table(positions, {width})\n"
WHAT = (
    f"the model's own table, {table.size:,} positions of {width:,} numbers"
    if table.own
    else f"the table that {table.source} learned, {table.size:,} positions of {width:,} numbers"
)


def look(what: str) -> tuple:
    """measure's answer about the model's table and about sinusoids of the same size, kept between reruns."""
    return (
        given.looked_at((*which, "rows"), what, rows, places),
        given.looked_at((*which, "waves"), what, waves, places),
    )


part = kit.choose("Look at", ["Similarity", "Norms", "Components", "Spectrum", "Linear probe"], key="table")

if part == "Similarity":
    with kit.panel("How alike two positions are") as panel:
        one, two = look("cosine")
        figure = figures.panels(
            Window.stacked([one, two], places, table.step),
            [own, f"{other} of the same size"],
            row_title="position",
            column_title="position",
            value_title="cosine similarity",
            scale="diverging",
            limits=(-1, 1),
            across=2,
            note="" if table.own else table.note,  # of a cut one, the panels say themselves what is shown
            large=large,
        )
        page.show(
            figure,
            "position-similarity",
            code=f"{LINES}both = [measure.cosine(rows), measure.cosine(waves)]\n"
            f"figures.panels(both, [{own!r}, '{other} of the same size'], limits=(-1, 1), across=2)",
        )
        near, far = float(one.diagonal(1).nanmean()), float(one[0, -1])
        pairs = "Neighbours" if table.step == 1 else f"Positions {table.step} apart"
        panel.say(
            f"Shown: {WHAT}.",
            f"{pairs} have cosine {near:z.2f} on average (sinusoids: {float(two.diagonal(1).mean()):.2f}), the "
            f"first and the last position{' shown' if table.step > 1 else ''} {far:z.2f} ({float(two[0, -1]):.2f}).",
            "A band along the diagonal that fades: the table knows what is near. Stripes: it knows waves.",
            formula=learned.FORMULA,
            note=learned.PAPER,
        )

elif part == "Norms":
    with kit.panel("How long each position's vector is") as panel:
        one, two = look("norms")
        figure = figures.lines(
            {own: one, other: two},
            places,
            y_title="L2 norm",
            colours=COLOURS,
            points=False,
            note=table.note,
            large=large,
        )
        page.show(
            figure,
            "position-norms",
            code=f"{LINES}both = {{{own!r}: measure.norms(rows), 'sinusoids': measure.norms(waves)}}\n"
            "figures.lines(both, positions)",
        )
        high, low = int(one.argmax()), int(one.argmin())
        panel.say(
            f"Shown: {WHAT}.",
            f"Longest at position {int(places[high])} ({float(one[high]):.3g}), shortest at {int(places[low])} "
            f"({float(one[low]):.3g}); sinusoids are all {float(two.mean()):.3g} long.",
            "Positions that training texts seldom reached stay near where they started.",
            formula=r"\|P_p\|_2 = \sqrt{\textstyle\sum_i P_{p,i}^2}",
        )

elif part == "Components":
    with kit.panel("The directions in which the table varies most") as panel:
        view = kit.choose("Show", ["Against position", "On a plane"], key="components")
        one, two = look("components")
        if view == "Against position":
            count = min(4, one.points.shape[1])
            figure = figures.lines(
                {f"component {i + 1}": one.points[:, i] for i in range(count)},
                places,
                y_title="coordinate",
                points=False,
                note=table.note,
                large=large,
            )
            code = (
                f"{LINES}points = measure.project(rows, {count}).points\n"
                f"figures.lines({{f'component {{i + 1}}': points[:, i] for i in range({count})}}, positions)"
            )
        else:
            figure = figures.scatter(
                one.points[:, :2], values=places, positions=places.tolist(), path=True, note=table.note, large=large
            )
            code = f"{LINES}figures.scatter(measure.project(rows).points, values=positions, path=True)"
        page.show(figure, "components", code=code)
        panel.say(
            f"Shown: {WHAT}.",
            f"Two directions hold {float(one.share[:2].sum()):.0%} of the variance, four "
            f"{float(one.share[:4].sum()):.0%}; of the sinusoids {float(two.share[:2].sum()):.0%} and "
            f"{float(two.share[:4].sum()):.0%}.",
            "Where two components are smooth waves, the positions go along a helix: GPT-2's table is known for it.",
            formula=r"P - \bar P = U S V^\top",
        )

elif part == "Spectrum":
    with kit.panel("What the table is made of") as panel:
        view = kit.choose("Show", ["Singular values", "Waves"], key="spectrum")
        if view == "Singular values":
            one, two = look("singular values")
            figure = figures.lines(
                {own: one, other: two},
                x_title="direction",
                y_title="singular value",
                colours=COLOURS,
                points=False,
                note=table.note,
                large=large,
            )
            code = (
                f"{LINES}both = {{{own!r}: measure.singular_values(rows),\n"
                "        'sinusoids': measure.singular_values(waves)}\n"
                "figures.lines(both, x_title='direction', y_title='singular value')"
            )
            formula = r"P - \bar P = U S V^\top"
        else:
            one, two = look("periods")
            figure = figures.lines(
                {own: one.share, other: two.share},
                {own: one.period * table.step, other: two.period * table.step},
                x_title="period (tokens)",
                y_title="share of the power",
                colours=COLOURS,
                log_x=True,
                note=table.note,
                large=large,
            )
            code = (
                f"{LINES}both = {{{own!r}: measure.periods(rows), 'sinusoids': measure.periods(waves)}}\n"
                "figures.lines({name: found.share for name, found in both.items()},\n"
                "              {name: found.period for name, found in both.items()}, log_x=True)"
            )
            formula = r"\hat P_f = \sum_p P_p\, e^{-2\pi i f p / n}"
        page.show(figure, "spectrum", code=code)
        if view == "Singular values":
            said = (
                f"Of {len(one)} directions, {measure.rank_for(one)} hold 90 % of the variance; of the sinusoids' table "
                f"{measure.rank_for(two)}.",
                "The fewer, the less of its width a table uses to tell positions apart.",
            )
        else:
            found = ", ".join(
                f"{period * table.step:,.0f} tokens long ({share:.0%})" for period, share in one.strongest(3)
            )
            said = (
                f"The strongest waves in the table are {found}.",
                "A long one tells early from late, a short one neighbour from neighbour.",
            )
        panel.say(f"Shown: {WHAT}.", *said, formula=formula)

else:
    with kit.panel("How well a linear map reads the position") as panel:
        if size < 8:
            kit.sentences(f"The table has {size} positions; a probe needs at least 8.")
        else:
            one, two = look("probe")
            figure = figures.lines(
                {own: one.read, other: two.read, "perfect": one.positions},
                one.positions,
                x_title="true position (held out)",
                y_title="position that is read",
                colours=[*COLOURS, kit.GREY],
                dashes=["solid", "solid", "dot"],
                points=False,
                note=table.note,
                large=large,
            )
            page.show(
                figure,
                "probe",
                code=f"{LINES}one, two = measure.probe(rows, positions), measure.probe(waves, positions)\n"
                f"figures.lines({{{own!r}: one.read, 'sinusoids': two.read, 'perfect': one.positions}}, one.positions)",
            )
            panel.say(
                f"Shown: {WHAT}.",
                f"On positions that it was not fitted on, R² is {one.r2:.3f} and the mean error {one.error:.2f} "
                f"tokens; with sinusoids {two.r2:.3f} and {two.error:.2f}.",
                "R² of 1: the position can be read off the vector exactly. 0: guessing the mean is as good.",
                formula=r"\hat p = w\cdot P_p + b, \quad R^2 = 1 - \frac{\sum (p-\hat p)^2}{\sum (p-\bar p)^2}",
            )
