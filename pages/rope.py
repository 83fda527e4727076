"""How does turning q and k tell the model how far apart two tokens are?"""

from tinput import figures, measure
from tinput.positions import Add, rope
from tinput.ui import given, kit, surgery

page = kit.start("How does turning q and k say how far apart two tokens are?", about=rope)
trace, large, seq = page.trace, kit.large(), page.seq
turned = given.rotation(page, rope)
pairs = turned.angles.shape[-1]
source = "recorded from the model" if turned.own else "what-if: theta 10,000 on the model's own heads"
BASE = "b: rope theta, 10,000 in the paper"
LINES = "import torch\nfrom tinput import figures, measure\nfrom tinput.positions import rope\n\n"
if turned.own:
    angles = "trace.effect.angles"
    config = "model.config"
else:
    config = f"{{'head_dim': {2 * pairs}, 'rope_theta': 10_000.0}}"
    LINES += f"inv_freq = rope.frequencies({config}).inv_freq\n"
    angles = "rope.angles(torch.arange(len(trace.ids)), inv_freq)"

part = kit.choose(
    "Look at", ["Angles", "Dials", "Wavelengths", "q and k", "Scores", "By pair", "Pairing", "Scaling"], key="turn"
)
OTHERS = ("dynamic", "yarn", "llama3")
PAIRINGS = {"half": "half-split", "interleaved": "interleaved"}


def no_qk() -> None:
    if not page.offers_attention():
        reason = turned.reason or "this model has no attention"
        kit.sentences(f"q and k could not be recorded before the rotation: {reason}.")


if part == "Angles":
    with kit.panel("How far each pair is turned at each token") as panel:
        figure = figures.heatmap(
            turned.angles,
            page.labels,
            positions=page.place,
            column_title="pair",
            value_title="angle (radians, within one turn)",
            scale="cyclic",
            note=source,
            large=large,
        )
        code = (
            f"{LINES}figures.heatmap({angles}, trace.tokens.labels, column_title='pair',\n"
            "                value_title='angle (radians)', scale='cyclic')"
        )
        page.show(figure, "angles", code=code)
        effect = page.effect_of(rope.Rotate) or rope.predict(
            {"head_dim": 2 * pairs, "rope_theta": 10_000.0}, page.positions
        )
        panel.say(
            *rope.notice(effect, page.positions),
            "The left columns spin within a few tokens; the right ones hardly move: seconds and hours of one clock.",
            formula=rope.FORMULA,
            note=rope.PAPER,
        )

elif part == "Dials":
    with kit.panel("The pairs as clock hands") as panel:
        figure = figures.dials(
            turned.angles, page.labels, positions=page.place, colour=rope.COLOUR, note=source, large=large
        )
        page.show(figure, "dials", code=f"{LINES}figures.dials({angles}, trace.tokens.labels)")
        last = page.place[-1]
        turns = measure.turns(turned.angles[-1])
        panel.say(
            f"Each hand starts at the right. At position {last:,} the first pair has turned {float(turns[0]):,.1f} "
            f"times, the last by {360 * float(turns[-1]):.3g}°.",
            "Read a column downwards: one pair, turning at a steady speed; the line inside is the way it came.",
            "The same token at two places has the same q and k, turned by different angles."
            if page.effect_of(Add) is None
            else "",
            formula=r"p\,\theta_i = p\,b^{-2i/d}",
            note=BASE,
        )

elif part == "Wavelengths":
    with kit.panel("How many tokens each pair needs for a full turn") as panel:
        context = given.context(page)
        wave = measure.wavelengths(turned.frequencies)
        levels = [(seq, f"this text, {seq:,} tokens")]
        levels += [(context, f"context, {context:,} tokens")] if context and context != seq else []
        figure = figures.lines(
            {"wavelength": wave},
            x_title="pair",
            y_title="wavelength (tokens)",
            colours=[rope.COLOUR],
            levels=levels,
            log_y=True,
            note=source,
            large=large,
        )
        code = (
            f"{LINES}wave = measure.wavelengths(rope.frequencies({config}).inv_freq)\n"
            "figures.lines({'wavelength': wave}, x_title='pair', y_title='wavelength (tokens)', log_y=True)"
        )
        page.show(figure, "wavelengths", code=code)
        slow = int((wave > context).sum()) if context else 0
        panel.say(
            f"From {float(wave[0]):.3g} tokens (pair 0) to {float(wave[-1]):,.0f} (pair {pairs - 1}).",
            f"{slow} of {pairs} pairs never come full circle within the context of {context:,} tokens."
            if context
            else "The configuration does not say how long a text may be.",
            "A text longer than any in training turns these slow pairs to angles that the model has never seen.",
            formula=r"\lambda_i = 2\pi / \theta_i = 2\pi\,b^{2i/d}",
            note=BASE,
        )

elif part == "q and k":
    with kit.panel("One head's vectors before and after the rotation") as panel:
        left, right = kit.columns(2)
        with left:
            which = kit.choose("Vectors", ["q", "k"], key="qk")
        before, after = (turned.q_before, turned.q) if which == "q" else (turned.k_before, turned.k)
        if before is None or after is None:
            no_qk()
        else:
            with right:
                head = kit.number("Head", key="head", high=len(after) - 1)
            figure = figures.panels(
                [before[head], after[head]],
                ["before", "after"],
                page.labels,
                row_title="token",
                column_title="dimension",
                across=2,
                note=source,
                large=large,
            )
            own = f"before, after = trace.attention.{which}_before[{head}], trace.attention.{which}[{head}]\n"
            if not turned.own:
                own = f"before = trace.attention.{which}[{head}]\nafter = rope.rotate(before, {angles})\n"
            code = f"{LINES}{own}figures.panels([before, after], ['before', 'after'], across=2)"
            page.show(figure, "rotated", code=code)
            one, two = measure.norms(before[head]), measure.norms(after[head])
            panel.say(
                f"{2 * pairs} of {turned.d_head} dimensions turn, from dimension {turned.start}; pairing: "
                f"{PAIRINGS[turned.layout]}.",
                f"Length of the last token's {which}: {float(one[-1]):.4g} before, {float(two[-1]):.4g} after.",
                "The first token keeps its vector: position 0 is no turn at all." if page.place[0] == 0 else "",
                formula=rope.FORMULA,
            )

elif part == "Scores":
    with kit.panel("Scores by distance, and what a shift of all positions does") as panel:
        left, right = kit.columns(2)
        with left:
            count = 1 if turned.q is None else len(turned.q)
            head = kit.number("Head", key="head", high=count - 1)
        with right:
            shift = kit.number("Shift all positions by", key="shift", default=100, high=100_000)
        scores, moved = (turned.scores(page, head, by) for by in (0, shift))
        if scores is None:
            no_qk()
        elif moved is None:
            kit.sentences(f"{page.name} takes no positions as far as that: choose a smaller shift.")
        else:
            read, again = measure.by_distance(scores, signed=True), measure.by_distance(moved, signed=True)
            figure = figures.lines(
                {"as it is": read.mean, f"shifted by {shift:,}": again.mean},
                read.distance,
                x_title="key's position minus query's (tokens)",
                y_title="score",
                bands={"as it is": (read.low, read.high)},
                colours=[rope.COLOUR, kit.GREY],
                dashes=["solid", "dot"],
                points=False,
                note=source,
                large=large,
            )
            made = (
                "mask = trace.attention.mask[{0}].tensor()\n"
                "scores = trace.attention.scores[{0}].tensor() + mask\n"
                "shifted = model.trace(ids=trace.ids, positions=trace.positions + {1})\n"
                "moved = shifted.attention.scores[{0}].tensor() + mask\n"
                if turned.own
                else "def scores_at(positions):\n"
                "    turned = rope.angles(positions, inv_freq)\n"
                "    q, k = (rope.rotate(x[{0}], turned) for x in (trace.attention.q, trace.attention.k))\n"
                "    return trace.attention.scale * q @ k.T + trace.attention.mask[{0}].tensor()\n\n"
                "positions = torch.arange(len(trace.ids))\n"
                "scores, moved = scores_at(positions), scores_at(positions + {1})\n"
            ).format(head, shift)
            code = (
                f"{LINES}{made}read, again = (measure.by_distance(values, signed=True) for values in (scores, moved))\n"
                f"figures.lines({{'as it is': read.mean, 'shifted by {shift:,}': again.mean}}, read.distance,\n"
                "              x_title=\"key's position minus query's (tokens)\", y_title='score',\n"
                "              bands={'as it is': (read.low, read.high)}, dashes=['solid', 'dot'], points=False,\n"
                f"              colours=[{rope.COLOUR!r}, {kit.GREY!r}])"
            )
            page.show(figure, "scores", code=code)
            panel.say(
                f"Moving all {seq:,} tokens by {shift:,} changes no score by more than "
                f"{float((scores - moved).nan_to_num(0).abs().max()):.2g}, while the scores go up to "
                f"{float(scores.max()):.3g}: only the distance counts.",
                "The band holds the middle 80 % of the scores at each distance: what the tokens are counts most.",
                formula=r"(R_m q)^\top (R_n k) = q^\top R_{n-m}\, k",
            )

elif part == "By pair":
    with kit.panel("What each frequency pair adds to a score") as panel:
        pairs_of = surgery.by_pair(page, rope)
        if isinstance(pairs_of, str):
            kit.stop(*([] if page.offers_attention() else [pairs_of]))
        waves = pairs_of.wavelengths
        names = [f"{wave:,.3g}" if wave < 1000 else f"{wave:,.0f}" for wave in waves.tolist()]
        names += ["not turned"] if len(pairs_of.rest) else []
        MADE = "import torch\nfrom tinput import figures, surgery\n\n" + (
            "pairs = surgery.split(model, trace)\n"
            if turned.own
            else f"attention = surgery.swap(model, trace, {rope.NAME!r})\n"
            f"rotation = tinput.SCHEMES[{rope.NAME!r}].predict({{'head_dim': {2 * pairs}}}, torch.arange(2))\n"
            "pairs = surgery.pairs_of(attention, rotation, rotation.angles[1])\n"
        )
        left, right = kit.columns(2)
        with left:
            one_score = kit.choose("Show", ["One score", "All heads"], key="pairs") == "One score"
        if one_score:
            with right:
                head = kit.number("Head", key="head", high=pairs_of.attention.heads - 1)
            query, key = kit.query_and_key(page)
            parts = pairs_of.parts(head, query, key)[: len(names)]
            figure = figures.bars(
                parts,
                names,
                x_title="wavelength (tokens)",
                y_title="part of the score",
                colour=rope.COLOUR,
                note=source,
                large=large,
            )
            code = (
                f"{MADE}parts = pairs.parts({head}, {query}, {key})[:{len(names)}]\n"
                "figures.bars(parts, x_title='pair', y_title='part of the score')"
            )
            page.show(figure, "parts", code=code)
            score, most = float(parts.sum()), int(parts.abs().argmax())
            rest = f"; what is not turned adds {float(parts[-1]):.3g}" if len(pairs_of.rest) else ""
            panel.say(
                f"The score of {page.labels[query]} for {page.labels[key]}, {abs(query - key)} tokens apart, is "
                f"{score:.4g}: the sum of the bars{rest}.",
                f"The largest part, {float(parts[most]):.3g}, is "
                + (f"that of wavelength {names[most]}." if most < len(waves) else "of the dimensions not turned."),
                formula=r"s_{q,k} = \textstyle\sum_i s_i, \quad s_i = \mathrm{scale}\,(q_a k_a + q_b k_b)",
            )
        else:
            shares = pairs_of.shares()[:, : len(names)]
            figure = figures.heatmap(
                shares,
                [f"head {head}" for head in range(len(shares))],
                names,
                row_title="head",
                column_title="wavelength (tokens)",
                value_title="share",
                scale="diverging",
                dtype=trace.dtype,
                note=source,
                large=large,
            )
            code = (
                f"{MADE}shares = pairs.shares()[:, :{len(names)}]\n"
                "figures.heatmap(shares, [f'head {h}' for h in range(len(shares))], row_title='head',\n"
                "                column_title='pair', value_title='share', scale='diverging')"
            )
            page.show(figure, "shares", code=code)
            fast = shares[:, : len(waves)][:, waves <= seq].sum(1)
            high, low = int(fast.argmax()), int(fast.argmin())
            panel.say(
                f"Pairs that turn at least once within these {seq:,} tokens make {float(fast[high]):.0%} of what tells "
                f"keys apart in head {high}, and {float(fast[low]):.0%} in head {low}.",
                "Shares on the left: the head looks at places nearby. On the right: at what the tokens are, wherever.",
                "A row sums to 1. A pair that works against the rest has a negative share.",
                formula=r"\frac{\mathrm{cov}(s_i, s)}{\mathrm{var}(s)}, \quad s = \textstyle\sum_i s_i",
                note="Around each query's mean over the keys that it sees, which softmax removes. "
                "Barbero et al. 2024 find both kinds of heads in large models.",
            )

elif part == "Pairing":
    with kit.panel("Which dimensions turn together") as panel:
        index = given.pairings(turned, list(PAIRINGS))
        figure = figures.heatmap(
            index,
            list(PAIRINGS.values()),
            row_title="pairing",
            column_title="dimension of a head",
            value_title="pair",
            scale="sequential",
            limits=(0, pairs - 1),
            masked=index < 0,
            dtype="float32",
            note="blank: not turned" if bool((index < 0).any()) else "",
            large=large,
        )
        code = (
            f"{LINES}pair = torch.arange({pairs})\n"
            "both = torch.stack([torch.cat([pair, pair]), pair.repeat_interleave(2)])\n"
            "figures.heatmap(both, ['half-split', 'interleaved'], row_title='pairing', value_title='pair')"
        )
        page.show(figure, "pairing", code=code)
        panel.say(
            f"{page.name} {'pairs' if turned.own else 'would pair'} {PAIRINGS[turned.layout]}: "
            f"dimension {turned.start} turns with {turned.start + (pairs if turned.layout == 'half' else 1)}.",
            "The two are the same rotation with the dimensions in another order. Weights trained for one give nonsense "
            "with the other, so neither is to be corrected into the other.",
            f"{2 * pairs} of {turned.d_head} dimensions turn.",
            formula=r"(i,\; i + \tfrac{d}{2}) \quad\text{or}\quad (2i,\; 2i+1)",
        )

else:
    with kit.panel("The ways to stretch a context, on this model's frequencies") as panel:
        factor = int(kit.choose("Times longer", ["2", "4", "8", "32"], key="stretch", default="4"))
        sizes, context = given.turning(page, rope), given.context(page) or 2048
        found = given.scalings(page, rope, factor)
        series = {name: measure.wavelengths(frequencies) for name, frequencies in found.items()}
        own = measure.wavelengths(turned.frequencies)
        scaled = turned.own and not bool((own - series["default"]).abs().le(1e-4 * own).all())
        if scaled:
            series["this model"] = own
        figure = figures.lines(
            series,
            x_title="pair",
            y_title="wavelength (tokens)",
            levels=[(context, f"context {context:,}"), (factor * context, f"{factor} times longer")],
            log_y=True,
            points=False,
            note=f"theta and width of {'the model' if turned.own else 'a what-if'}",
            large=large,
        )
        mine = f"series['this model'] = measure.wavelengths(rope.frequencies({config}).inv_freq)\n"
        mine = mine if scaled else ""
        code = (
            f"{LINES}sizes = {sizes!r}\n"
            f"ways = {{'default': sizes, **rope.stretched(sizes, {context}, {factor})}}\n"
            f"series = {{name: measure.wavelengths(rope.frequencies(way, seq_len={factor * context}).inv_freq)\n"
            "          for name, way in ways.items()}\n"
            f"{mine}figures.lines(series, x_title='pair', y_title='wavelength (tokens)', log_y=True, points=False)"
        )
        page.show(figure, "scaling", code=code)
        fast, slow = (
            {name: float(wave[i] / series["default"][i]) for name, wave in series.items()} for i in (0, pairs - 1)
        )
        spared = all(abs(fast[name] - 1) < 0.01 for name in fast if name in OTHERS)
        panel.say(
            f"{page.name} has no scaling: its own line is the default." if turned.own and not scaled else "",
            f"Position interpolation (linear) slows every pair {factor} times, the fast ones too, which tell "
            "neighbours apart.",
            "The others spare the fast pairs: the slowest is slowed "
            + ", ".join(f"{slow[name]:.3g} times by {name}" for name in slow if name in OTHERS)
            + ("; the fastest stays as it is." if spared else "."),
            formula=r"\lambda'_i = s_i\,\lambda_i, \quad 1 \le s_i \le s",
            note="Ntk is a larger theta; dynamic grows it with the text, and at the full length is the same. Longrope "
            "has no line: its divisors were found by search and stand in a model's own file.",
        )
