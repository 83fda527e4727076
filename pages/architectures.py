"""How do all architectures tell positions apart?"""

import streamlit as st

from tinput import atlas, figures
from tinput.ui import architectures, kit

page = kit.start("How do all architectures tell positions apart?")
version, rows = atlas.load()
LINES = "\nfrom tinput import atlas, figures\n\nversion, rows = atlas.load()\n"

find = st.text_input(
    "Find",
    key="find",
    bind="query-params",
    placeholder="a name, a scheme, a number: llama, ALiBi, interleaved, 500,000",
)
found = architectures.matching(rows, find or "")
had = [row for row in found if "reason" not in row]

with kit.panel("Architectures by the scheme that they are named by") as panel:
    if found:
        labels, values, colours = architectures.counts(found)
        figure = figures.bars(
            values,
            labels,
            x_title="scheme",
            y_title="architectures",
            colour=colours,
            note=f"transformers {version}",
            large=kit.large(),
            height=320,
        )
        code = (
            f"{LINES}names = [row['schemes'][0] for row in rows if 'schemes' in row]\n"
            "schemes = sorted(set(names), key=names.count, reverse=True)\n"
            "figures.bars([names.count(name) for name in schemes], schemes, x_title='scheme', y_title='architectures')"
        )
        page.show(figure, "schemes", code=code)
    else:
        kit.sentences("No architecture has all of these words: shorten the search.")
    own = next((row for row in rows if row["model_type"] == page.model.model_type), None)
    mixed = sum(any(" of " in stack for stack in row["stacks"]) for row in had)
    panel.say(
        f"{len(found)} of {len(rows)} text architectures of transformers {version}; {len(had)} were recorded.",
        f"{mixed} of these have a scheme in some of their layers only." if mixed else "",
        f"The model at the left is of type {page.model.model_type}."
        if own
        else f"The model at the left, {page.name}, is of no type of transformers: it is not in the table.",
        note="Each was built at the default sizes of its configuration and run once without weights. "
        "Schemes, pairing, theta and steps were read off that run.",
    )

with st.container():
    kit.html('<h2 class="panel-title">Every architecture</h2>')
    if found:
        architectures.table(page, found, "architectures", f"{LINES}import pandas\npandas.DataFrame(rows)")
    chosen = architectures.chosen(rows)
    if chosen:
        kit.html(architectures.facts(chosen))
        architectures.links(chosen)
    else:
        kit.note("Tick a row, or several, to see all that is known of them side by side.")
