"""What does the tokenizer make of the text?"""

from tinput import tokens as tokenizing
from tinput.ui import kit, literal, words

page = kit.start("What does the tokenizer make of the text?")
tokens = page.tokens

with kit.panel("The text, token by token") as panel:
    kit.html(literal.marked(tokens))
    panel.say(
        words.became(tokens),
        *(flag.message for flag in tokens.flags),
        "A colour ends where its token ends.",
        "Tokens that share a character have one colour together."
        if any(group.stop - group.start > 1 for group in tokens.groups)
        else "",
    )

view = kit.choose("Show", ["Table", "Stages of the tokenizer"], key="token_view")

if view == "Table":
    with kit.panel("Every token") as panel:
        page.table(
            {
                "index": range(page.seq),
                "piece": tokens.pieces,
                "shows as": tokens.labels,
                "bytes": [raw.hex(" ") for raw in tokens.bytes],
                "id": tokens.ids,
                "position": page.place,
                "span": ["" if span is None else f"{span[0]}–{span[1]}" for span in tokens.spans],
                "special": tokens.special,
            },
            "tokens",
            code="trace.tokens.pieces, trace.tokens.ids, trace.tokens.spans",
        )
        panel.say(
            "A piece is the vocabulary's own string; bytes are what it stands for (UTF-8); a span is where it came "
            "from in the text.",
            "The id is all that the model is given: two tokens of one id are the same to it but for their positions.",
            words.signs(tokens.pieces),
        )
else:
    with kit.panel("What each stage did") as panel:
        stages = tokenizing.stages(page.model.tokenizer, page.text)
        for stage in stages:
            kit.html(literal.stage(stage.name, stage.what, stage.pieces))
        page.tools(
            "stages",
            code="for stage in tinput.tokens.stages(model.tokenizer, text):\n    print(stage.name, stage.pieces)",
            csv=lambda: page.csv(
                {
                    "stage": [stage.name for stage in stages for _ in stage.pieces],
                    "index": [i for stage in stages for i in range(len(stage.pieces))],
                    "piece": [piece for stage in stages for piece in stage.pieces],
                }
            ),
        )
        panel.say(
            "The normaliser cleans the text, the pre-tokenizer cuts it into words, the model cuts words into pieces of "
            "its vocabulary, the post-processor adds what the model wants around them.",
            "Special tokens typed in the text are taken out before the first stage, and pass through whole.",
            words.signs([piece for stage in stages for piece in stage.pieces]),
        )
