"""Text that shows exactly as typed. Streamlit reads Markdown, LaTeX and HTML nearly everywhere; user text and tokens
are never given to it except through here: escaped HTML for `st.html`, with control characters made visible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tinput.tokens import Tokens

__all__ = ["badge", "chip", "inline", "marked", "paragraphs", "stage", "strip", "table", "visible"]

# U+0000-U+001F have pictures at U+2400-U+241F; a browser would drop or replace the characters themselves.
_CONTROLS = {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421}
STRIP_LIMIT = 400  # tokens in the strip on top of a page: about 40 kB of HTML


def visible(text: str) -> str:
    """The text with control characters as their pictures (NUL as ␀) and lone surrogates as U+FFFD."""
    return text.translate(_CONTROLS).encode("utf-8", "replace").decode("utf-8")


def inline(text: str) -> str:
    """HTML that shows `text` literally, blanks kept."""
    return escape(visible(text), quote=True)


def chip(label: str, title: str = "", kind: str = "") -> str:
    """HTML for one token, read in its script's direction. title: on hover; kind: "" | "special" | "chosen"."""
    classes = f"tok {kind}".strip()
    hover = f' title="{inline(title)}"' if title else ""
    return f'<span class="{classes}" dir="auto"{hover}>{inline(label)}</span>'


def strip(
    labels: Sequence[str],
    titles: Sequence[str],
    special: Sequence[bool] | None = None,
    *,
    chosen: int | None = None,
    limit: int = STRIP_LIMIT,
) -> str:
    """HTML for a row of tokens, two lines high, scrollable; tokens past `limit` are counted, not shown.

    First to last from left to right, whatever their script: as on the axes of the figures.
    """
    kinds = ["special" if special and special[i] else "" for i in range(len(labels))]
    if chosen is not None and 0 <= chosen < len(kinds):
        kinds[chosen] = "chosen"
    chips = [chip(*parts) for parts in zip(labels[:limit], titles[:limit], kinds[:limit], strict=True)]
    if len(labels) > limit:
        chips.append(f'<span class="more">and {len(labels) - limit:,} more</span>')
    return f'<div class="strip" tabindex="0" role="group" aria-label="tokens of the text">{"".join(chips)}</div>'


def badge(label: str, colour: str, title: str = "") -> str:
    """HTML for a badge: a dot of `colour` (a CSS colour, ours and never the user's) and a literal label."""
    hover = f' title="{inline(title)}"' if title else ""
    return f'<span class="badge"{hover}><i style="background:{colour}"></i>{inline(label)}</span>'


def paragraphs(sentences: Iterable[str], css: str = "notice") -> str:
    """HTML for a few literal sentences, one paragraph each; empty ones are left out."""
    return f'<div class="{css}">{"".join(f"<p>{inline(sentence)}</p>" for sentence in sentences if sentence)}</div>'


_TURNS = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
MARKED_LIMIT = 1_000  # groups of tokens in the marked text, and pieces of a stage


def marked(tokens: Tokens) -> str:
    """HTML for the text with its tokens marked, each character once; tokens that share a character are one mark.

    What belongs to no token (a blank that the tokenizer dropped) stands between the marks as it is. Each line runs in
    the direction of its script, and the marks do not break it: the text looks as it does where it was typed.
    """
    shades = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9")
    parts, at = [], 0
    for number, group in enumerate(tokens.groups[:MARKED_LIMIT]):
        ids = ", ".join(str(i) for i in tokens.ids[group.start : group.stop][:12])
        many = f"tokens {group.start} to {group.stop - 1}" if group.stop - group.start > 1 else f"token {group.start}"
        style = f"background:color-mix(in srgb, {shades[number % len(shades)]} 30%, transparent)"
        if group.span is None:
            style = "outline:1px dashed;margin:0 .15rem"
        else:
            parts.append(_flowing(tokens.text[at : group.span[0]]))
            at = max(at, group.span[1])
        title = inline(f"{many} · id {ids}")
        parts.append(f'<span style="{style}" title="{title}">{_flowing(group.text)}</span>')
    if len(tokens.groups) > MARKED_LIMIT:
        parts.append(f'<span class="more"> and {len(tokens.groups) - MARKED_LIMIT:,} more</span>')
    return f'<div class="marked" dir="auto">{"".join(parts)}</div>'


def _flowing(text: str) -> str:
    """HTML where line ends and tabs do their work; every other control character shows as its picture.

    What turns the direction of a text (U+202E and its kin) does so within its own mark, not in all that follows.
    """
    shown = escape("".join(char if char in "\n\t" else visible(char) for char in text))
    return f"<bdi>{shown}</bdi>" if _TURNS & set(text) else shown


def stage(name: str, what: str, pieces: Sequence[str]) -> str:
    """HTML for one stage of a tokenizer: its name, its parts, and the text after it in pieces."""
    chips = "".join(chip(piece.replace(" ", "␣") or "(empty)") for piece in pieces[:MARKED_LIMIT])
    more = f'<span class="more">and {len(pieces) - MARKED_LIMIT:,} more</span>' if len(pieces) > MARKED_LIMIT else ""
    head = f'<p class="stage"><b>{inline(name)}</b> {inline(what)}</p>'
    return f'{head}<div class="strip tall">{chips}{more}</div>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]], marked_rows: Sequence[bool]) -> str:
    """HTML for a small table of facts; marked rows are tinted and say so."""
    top = "".join(f'<th scope="col">{inline(cell)}</th>' for cell in head)
    body = "".join(
        f"<tr{' class=differs' if differs else ''}>{''.join(f'<td>{inline(cell)}</td>' for cell in row)}</tr>"
        for row, differs in zip(rows, marked_rows, strict=True)
    )
    return f'<table class="facts"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'
