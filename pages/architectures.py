"""How do all architectures tell positions apart?"""

import streamlit as st

from tinput import atlas, figures
from tinput.ui import architectures, kit

kit.title("How do all architectures tell positions apart?")
find = kit.line("Find", key="find", placeholder="a name, a scheme, a number: llama, ALiBi, interleaved, 500,000")
page = architectures.Atlas(find)
had = [row for row in page.found if "reason" not in row]

with kit.panel("Architectures by the scheme that they are named by") as panel:
    if page.found:
        labels, values, colours = atlas.counts(page.found)
        figure = figures.bars(
            values,
            labels,
            x_title="scheme",
            y_title="architectures",
            colour=colours,
            note=f"transformers {page.version}",
            large=kit.large(),
            height=430 if kit.large() else 320,
        )
        code = (
            "labels, values, colours = atlas.counts(found)\n"
            "figures.bars(values, labels, x_title='scheme', y_title='architectures', colour=colours,\n"
            "             note=f'transformers {version}', height=320)"
        )
        page.show(figure, "schemes", code=code)
    else:
        kit.sentences("No architecture has all of these words: shorten the search.")
    mixed = sum(any(" of " in stack for stack in row["stacks"]) for row in had)
    missing = sum("reason" in row for row in page.rows)
    found = f" with “{page.find}”" if page.find else ""
    panel.say(
        f"Text architectures of transformers {page.version}{found}: {len(page.found)} of {len(page.rows)}, "
        f"{len(had)} of them recorded.",
        f"With a scheme in some of their layers only: {mixed}." if mixed else "",
        architectures.of_the_chosen(page),
        note="Each was built at the default sizes of its configuration and run once without weights. Schemes, pairing, "
        f"theta and steps were read off that run. {missing} of all {len(page.rows)} cannot be run at these sizes; at "
        "tiny ones, as in the README's table, all but a few can.",
    )

with st.container():
    kit.html('<h2 class="panel-title">Every architecture</h2>')
    if page.found:
        architectures.table(page, "architectures")
    chosen = architectures.chosen(page.rows)
    if chosen:
        kit.html(architectures.facts(chosen))
        architectures.links(chosen)
    else:
        kit.note("Tick a row, or several, to see all that is known of them side by side.", paper="")
