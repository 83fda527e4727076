"""A page as one HTML file that needs nothing but a browser: figures live, formulas drawn, where it is from.

plotly.js stands in it once, from the plotly package's own file. The file's own policy forbids it to load anything, and
to run any script but the two in it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from pathlib import Path

from tinput.ui import formula, literal, style
from tinput.ui.takeaway import Code, Formula, Group, Heading, Panel, Part, Picture, Setting, Shown, Table, Words

__all__ = ["html"]

_CSS = """
:root { color-scheme: light; }
body { font-family: "Source Sans 3", "Source Sans Pro", system-ui, sans-serif; color: #16202B; background: #FFFFFF;
  margin: 0 auto; padding: 2rem 2.2rem 4rem; max-width: 1500px; }
body > * + * { margin-top: .75rem; }
.panel-title { margin-top: 1.6rem; }
.panel { display: grid; grid-template-columns: minmax(0, 67fr) minmax(0, 33fr); gap: 2rem; margin-top: .6rem; }
@media (max-width: 900px) { .panel { grid-template-columns: minmax(0, 1fr); } }
.strip { max-height: none; }
.settings { font-size: .95rem; margin: .5rem 0; }
.formula { overflow-x: auto; margin: .2rem 0 1rem; font-size: 1.15rem; line-height: 1.7; }
math { font-family: "STIX Two Math", "Cambria Math", "Latin Modern Math", math, serif; }
.take button { font: inherit; font-size: .9rem; border: 0; background: none; padding: .2rem .5rem; cursor: pointer;
  color: #0B5CAD; }
.table { max-height: 32rem; overflow: auto; }
.table td { overflow-wrap: normal; }
details { font-size: .95rem; margin-top: .3rem; }
summary { cursor: pointer; color: #0B5CAD; }
pre { background: #EEF2F6; padding: .8rem 1rem; border-radius: .4rem; overflow-x: auto; font-size: .9rem; }
footer { margin-top: 2.5rem; }
pre.text { white-space: pre-wrap; overflow-wrap: anywhere; }
@media print { .take, details { display: none; } .panel { break-inside: avoid; } }
"""


def html(shown: Shown, when: str) -> bytes:
    """The whole page as one file, UTF-8. when: the date and time, as it shall stand in the file."""
    pictures = list(shown.pictures)
    data = "".join(
        f'<script type="application/json" id="figure-{escape(picture.name)}">{_spec(picture)}</script>'
        for picture in pictures
    )
    scripts = [_plotly(), Path(__file__).with_name("onefile.js").read_text(encoding="utf-8")] if pictures else []
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in scripts) or "'none'"
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
        '<meta name="viewport" content="width=device-width">\n<meta name="generator" content="tinput">\n',
        f"<title>{literal.inline(shown.question or shown.title)}</title>\n",
        f"{style.css(shown.large)}<style>{_CSS}</style>\n</head>\n<body>\n",
        f'<h1 class="question">{literal.inline(shown.question)}</h1>\n' if shown.question else "",
        *_all(shown.parts),
        _origin(shown, when),
        data,
        *(f"<script>{script}</script>\n" for script in scripts),
        "</body>\n</html>\n",
    ]
    return "".join(parts).encode("utf-8")


def _all(parts: Iterable[Part]) -> Iterator[str]:
    """The parts in order; settings that follow each other stand in one line."""
    settings: list[str] = []
    for part in parts:
        if isinstance(part, Setting):
            settings.append(f"{literal.inline(part.label)}: <b>{literal.inline(part.value)}</b>")
            continue
        if settings:
            yield f'<p class="settings">{" · ".join(settings)}</p>\n'
            settings = []
        yield _one(part) + "\n"
    if settings:
        yield f'<p class="settings">{" · ".join(settings)}</p>\n'


def _one(part: Part) -> str:
    match part:
        case Words():
            return part.html
        case Formula():
            return formula.mathml(part.latex)
        case Heading():
            return f"<h3>{literal.inline(part.title)}</h3>"
        case Group():
            return "".join(_all(part.parts))
        case Panel():
            picture, words = "".join(_all(part.picture)), "".join(_all(part.words))
            title = f'<h2 class="panel-title">{literal.inline(part.title)}</h2>'
            kind = "wide" if part.wide else "panel"
            return f'<section>{title}<div class="{kind}"><div>{picture}</div><div>{words}</div></div></section>'
        case Picture():
            return _figure(part)
        case Table():
            texts = part.frame.astype("object").where(part.frame.notna(), "")
            rows = [[str(cell) for cell in row] for row in texts.itertuples(index=False)]
            table = literal.table([str(title) for title in part.frame.columns], rows, [False] * len(rows))
            return f'<div class="table">{table}</div>{_code(part)}'
        case Code():
            return _code(part)
        case _:
            raise TypeError(f"a page does not show {type(part).__name__}")


def _figure(picture: Picture) -> str:
    name, height = escape(picture.name), int(picture.figure.to_plotly_json()["layout"].get("height") or 450)
    about = literal.inline(describe(picture))
    buttons = "".join(
        f'<button type="button" data-take="{format}" data-name="{name}">{format.upper()}</button>'
        for format in ("png", "svg")
    )
    return (
        f'<div data-figure="figure-{name}" style="height:{height}px" role="figure" aria-label="{about}"></div>'
        f"<noscript><p>{about}</p></noscript>"
        f'<div class="take">{buttons}</div>{_code(picture)}'
    )


def describe(picture: Picture) -> str:
    """What a figure shows, in words."""
    meta = picture.figure.to_plotly_json()["layout"].get("meta") or {}
    return meta.get("description") or picture.name.replace("-", " ")


def _code(part: Code) -> str:
    if not part.code:
        return ""
    lines = escape(f"{part.preamble}\n{part.code}")
    return f"<details><summary>Python</summary><pre>{lines}</pre></details>"


def _origin(shown: Shown, when: str) -> str:
    """Where all of it is from, as a table: models in columns."""
    columns: list[Mapping[str, object]] = shown.sources or [{}]
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = [(name, *(str(column.get(name, "")) for column in columns)) for name in names]
    rows += [(name, value, *[""] * (len(columns) - 1)) for name, value in (("taken along", when), ("view", shown.link))]
    table = literal.table(["", *([""] * len(columns))], rows, [False] * len(rows))
    texts = "".join(
        '<h3>The text</h3><pre class="text">' + "\n".join(map(literal.inline, text.split("\n"))) + "</pre>"
        for text in shown.texts
    )
    return f'<footer><h2 class="panel-title">Where this is from</h2>{table}{texts}</footer>\n'


def _spec(picture: Picture) -> str:
    """The figure as JSON that can stand in HTML."""
    text = picture.figure.to_json(validate=False) or "{}"
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return get_plotlyjs().replace("</script", "<\\/script")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
