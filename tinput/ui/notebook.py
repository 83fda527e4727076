"""A page as a Jupyter notebook: its words, and the Python that makes each of its pictures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from typing import Any

from tinput.ui.takeaway import Code, Formula, Group, Heading, Panel, Part, Setting, Shown, Words

__all__ = ["make", "text_of"]

_INTRO = "Runs from top to bottom wherever tinput is installed, or in its own folder."


def make(shown: Shown, when: str) -> str:
    """The notebook's JSON, nbformat 4.5. when: the date and time, as it shall stand in it.

    A cell for each picture, after one that makes `model`, `text`, `trace` and `labels`; one more of these where a
    picture is of another model. Text of the page is literal: nothing in it is read as Markdown or as a formula.
    """
    import nbformat
    from nbformat import v4

    cells: list[Any] = []

    def write(*lines: str) -> None:
        if any(lines):
            cells.append(v4.new_markdown_cell("\n\n".join(line for line in lines if line)))

    write(f"# {_literal(shown.question or shown.title)}", _literal(_INTRO))
    now, words = "", []
    for part in _flat(shown.parts):
        if isinstance(part, str):
            words.append(part)
            continue
        if not part.code:
            continue
        write(*words)
        words = []
        if part.preamble != now:
            now = part.preamble
            cells.append(v4.new_code_cell(now))
        cells.append(v4.new_code_cell(part.code.strip("\n"), metadata={"tinput": {"picture": part.name}}))
    write(*words)
    origin = [f"{name}: {value}" for source in shown.sources for name, value in source.items()]
    write("## Where this is from", *map(_literal, (*origin, f"taken along: {when}", f"view: {shown.link}")))
    for number, cell in enumerate(cells):  # ids by chance would make two notebooks of one view differ
        cell["id"] = f"cell-{number}"
    metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
    }
    made = v4.new_notebook(cells=cells, metadata=metadata)
    nbformat.validate(made)
    return nbformat.writes(made)


def _flat(parts: Iterable[Part]) -> Iterator[str | Code]:
    """Markdown lines, and what has code; in a panel the words come before the picture that they speak of."""
    for part in parts:
        match part:
            case Group():
                yield from _flat(part.parts)
            case Panel():
                yield f"## {_literal(part.title)}"
                with_code = [item for item in part.picture if isinstance(item, Code)]
                yield from _flat(item for item in part.picture if not isinstance(item, Code))
                yield from _flat(part.words)
                yield from _flat(with_code)
            case Code():
                yield part
            case Words():
                yield from map(_literal, text_of(part.html))
            case Formula():
                yield f"$$\n{part.latex}\n$$"
            case Setting():
                yield f"{_literal(part.label)}: {_literal(part.value)}"
            case Heading():
                yield f"### {_literal(part.title)}"


# What Markdown reads; a dot, a colon and a dash only where they begin a list, a rule or an address.
_MARKS = re.compile(r"[\\`*_{}\[\]<>#+!|~$&=^@]|\.(?=[^\s\d])|(?<=\d)\.(?=\s)|:(?=/)|^-|-(?=-)")


def _literal(text: str) -> str:
    """Markdown that shows `text` as it is. `$` and `\\` stand apart, so that no two of them make a formula."""
    line = " ".join(text.split())
    line = _MARKS.sub(lambda found: f"&#{ord(found[0])};", line)
    return line.replace("&#36;", "<span>&#36;</span>").replace("&#92;", "<span>&#92;</span>")


class _Lines(HTMLParser):
    """What a reader sees of HTML, line by line; the cells of a row divided by a dot."""

    ends = frozenset({"p", "div", "tr", "h1", "h2", "h3", "li", "table"})

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = [""]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        kind = dict(attrs).get("class") or ""
        if tag in self.ends:
            self.lines.append("")
        elif (tag in ("td", "th") or kind.startswith("badge")) and self.lines[-1]:
            self.lines[-1] += " · "
        elif kind.startswith("tok") and self.lines[-1]:
            self.lines[-1] += " "

    def handle_endtag(self, tag: str) -> None:
        if tag in self.ends:
            self.lines.append("")

    def handle_data(self, data: str) -> None:
        self.lines[-1] += data


def text_of(html: str) -> list[str]:
    """The lines of text in HTML made by `literal` or `words`."""
    reader = _Lines()
    reader.feed(html)
    reader.close()
    return [line for line in (line.strip() for line in reader.lines) if line.strip(" ·")]
