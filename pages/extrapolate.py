"""What happens past the length that a model was trained at?"""

from tinput.errors import BadText
from tinput.positions.coverage import spread
from tinput.twins import NAMES, extrapolate, reader
from tinput.ui import extrapolate as read
from tinput.ui import jobs, kit, unseen, writing

page = kit.start("What happens past the length that a model was trained at?", head=False)
six = read.of_the_twins(page)

LENGTH, POSITION, IF, NEVER, WRITE = "Loss by length", "Loss by position", "What if", "Never seen", "Continuations"
part = kit.choose("Look at", [LENGTH, POSITION, IF, NEVER, WRITE], key="far")


if part in (LENGTH, POSITION):
    by_length = part == LENGTH
    title = "How well the six bundled models predict a text, " + (
        "by how much of it they read" if by_length else "by where its tokens stand"
    )
    with kit.panel(title) as panel:
        one, two = kit.columns([3, 2])
        with one:
            found = read.source(kit.choose("Text read", read.SOURCES, key="read"), page.text)
        with two:
            bits = kit.choose("Loss in", ["nats a byte", "bits a byte"], key="unit") == "bits a byte"
        place = kit.empty()
        if found.plan is None:
            kit.sentences(found.trouble)
        else:
            known, left = read.curves(found, [reader.Variant(name) for name in NAMES])
            figure, code = read.picture(found, known, by_length=by_length, bits=bits)
            if figure is not None:
                six.show(figure, "losses", code=code)
            said = read.said(found, known, by_length=by_length, bits=bits)
            panel.say(*said, formula=read.FORMULA if by_length else "", note=read.how(found, by_length))
            with place.container():
                jobs.offer(left, "losses", "Compute")

elif part == IF:
    with kit.panel("One of the six with something changed, and not trained again") as panel:
        one, two = kit.columns([3, 2])
        with one:
            found = read.source(kit.choose("Text read", read.SOURCES, key="read"), page.text)
        with two:
            by_length = kit.choose("Loss by", ["length", "position"], key="by") == "length"
        one, two, three = kit.columns([3, 2, 2])
        with one:
            name = kit.choose("Model", read.changeable(), key="changed")
        factor, theta = 1, 0
        if reader.stretches(name):
            with two:
                factor = int(kit.choose("Times longer", list(map(str, extrapolate.FACTORS)), key="longer"))
            with three:
                theta = kit.number("Another theta", key="basis", high=100_000_000, help="0: none. It is computed here.")
        ways = reader.variants(name, factor) + [reader.Variant(name, reader.THETA, theta)] * (theta > 1)
        read.band(read.what_if(name, factor))
        place = kit.empty()
        if found.plan is None:
            kit.sentences(found.trouble)
        else:
            known, left = read.curves(found, [reader.Variant(name), *ways])
            figure, code = read.picture(found, known, by_length=by_length, bits=False)
            if figure is not None:
                six.show(figure, "changed", code=code)
            if read.too_long(known):
                kit.trouble(f"The model as it is: {read.too_long(known)}")
            said = read.said(found, known, by_length=by_length, bits=False)
            panel.say(*said, formula=read.FORMULA if by_length else "", note=read.how(found, by_length))
            with place.container():
                jobs.offer(left, "changed", "Compute")

elif part == NEVER:
    kit.html(kit.header(page))
    with kit.panel("What this model never met in training") as panel:
        one, two = kit.columns([3, 2])
        with one:
            times = int(kit.slider("Length of the text, in times that of the training", 1, 32, key="long", default=4))
        with two:
            trained = kit.number(
                "Trained on (tokens)",
                key="trained",
                high=1_000_000,
                help="0: what the configuration says of its context, before it was stretched",
            ) or unseen.trained(page)
        if not trained:
            fact = f"The configuration of {page.name} does not say how long its texts were"
            kit.sentences(f"{fact}: type it above.", paper=f"{fact}.")
        else:
            at = spread(trained * times)
            schemes = unseen.coverage(page, at, trained)
            if not schemes:
                kit.sentences(unseen.no_rule(page))
            else:
                scheme = kit.choose("Scheme", list(schemes), key="which") if len(schemes) > 1 else next(iter(schemes))
                found, ways = schemes[scheme], schemes[scheme].ways
                way = kit.choose("Way to read", list(ways), key="way") if len(ways) > 1 else next(iter(ways))
                shown = ways[way]
                figure, titles = unseen.picture(shown, at, trained)
                page.show(figure, "unseen", code=unseen.code(found, at, trained, way, titles))
                panel.say(
                    *shown.said,
                    *unseen.compared(ways),
                    formula=unseen.formula(found),
                    note=f"{page.name}, read at {trained * times:,} tokens. That it was trained on "
                    f"{trained:,} is what its configuration says of the context, or what was typed.",
                )

else:
    with kit.panel("How each of the six goes on", wide=True) as panel:
        one, two, three, four = kit.columns([3, 4, 3, 2])
        with one:
            text = kit.choose("Go on from", ["the novel", "your text"], key="goes")
        with two:
            length = int(kit.choose("Tokens given", ["192", "384", "1024"], key="given"))
        with three:
            warm = kit.slider("Temperature", 0.0, 1.5, key="warm", default=0.8, step=0.1)
        with four:
            seed = kit.number("Seed", key="seed", high=1_000_000)
        place = kit.empty()
        own = page.text if text != "the novel" else None
        try:
            written = writing.writing(own, length, warm, seed)
        except BadText as error:
            kit.sentences(str(error))
        else:
            kit.note(
                f"The last words given, and in bold the {writing.NEW} tokens that each model writes. With one seed all "
                f"draw the same random numbers; they were trained on {extrapolate.context():,} tokens."
            )
            kit.html(writing.html(written, of_the_novel=own is None))
            six.tools("continuations", writing.code(own is not None, length, warm, seed))
            with place.container():
                jobs.offer([written], "write", "Write")
