"""What differs when the same sentence goes into two models?"""

from tinput import figures, measure
from tinput.positions import SCHEMES
from tinput.ui import injected, kit, sources, words

page = kit.start("What differs when the same sentence goes into two models?")
large = kit.large()
left, right = kit.columns([3, 7])
with left:
    chosen = kit.model_choice("Second model", key="other", default=sources.SECOND_MODEL)
with right:
    other = kit.open_page(chosen, page.text)
    kit.html(kit.header(other, strip=other.tokens.ids != page.tokens.ids))
names = (page.name, other.name if other.name != page.name else f"{other.name} (again)")
second = other.lines("other_") + "\n"

part = kit.choose("Look at", ["Facts", "Block inputs", "What each injects"], key="compare")

if part == "Facts":
    with kit.panel("Facts that differ") as panel:
        facts = words.facts(page, other)
        everything = kit.toggle("Show what is equal too", key="equal")
        shown = [fact for fact in facts if everything or fact.differs]
        kit.html(words.facts_table(shown, names))
        count = sum(fact.differs for fact in facts)
        panel.say(
            f"{count} of {len(facts)} facts differ." if count else "All facts are equal: it is the same model twice.",
            *words.tokens_apart(page, other),
        )

elif part == "Block inputs":
    limits = figures.limits(page.trace.block_input, other.trace.block_input)
    for side, name, prefix in ((page, names[0], ""), (other, names[1], "other_")):
        with kit.panel(f"{name}: what enters the first block") as panel:
            values = side.matrix(side.trace.block_input)
            figure = figures.heatmap(
                values,
                side.rows(values),
                positions=side.place,
                limits=limits,
                dtype=side.trace.dtype,
                large=large,
            )
            page.show(
                figure,
                f"{prefix}input",
                code=f"{second}limits = tinput.figures.limits(trace.block_input, other_trace.block_input)\n"
                f"tinput.figures.heatmap({prefix}trace.block_input, {prefix}labels, limits=limits)",
            )
            sizes = measure.norms(values)
            panel.say(
                f"{words.shape(values)} numbers; the mean length of a vector is {float(sizes.mean()):.3g}.",
                note="Both pictures have one colour scale.",
            )

else:
    limits = injected.common_limits(page.trace.effects, other.trace.effects)
    for side, name, prefix in ((page, names[0], ""), (other, names[1], "other_")):
        for number, item in enumerate(side.trace.effects):
            scheme = SCHEMES.get(item.scheme)
            with kit.panel(f"{name}: {words.label(item.scheme)}{f', {scheme.INJECTION}' if scheme else ''}") as panel:
                figure, call = injected.picture(
                    side,
                    item,
                    f"{prefix}trace.effects[{number}].effect",
                    f"{prefix}labels",
                    limits=limits.get(type(item.effect)),
                    large=large,
                )
                if figure is None:
                    kit.sentences(call)
                else:
                    page.show(figure, f"{prefix}effect-{number}", code=f"{second}{call}")
                if scheme and item.effect is not None:
                    panel.say(*scheme.notice(item.effect, side.positions), formula=scheme.FORMULA)
