"""Text that shows exactly as typed. Streamlit reads Markdown, LaTeX and HTML nearly everywhere; user text and tokens
are never given to it except through here: escaped HTML for `st.html`, with control characters made visible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["badge", "chip", "inline", "paragraphs", "strip", "visible"]

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
    """HTML for one token. `title` is shown on hover; kind: "" | "special" | "chosen"."""
    classes = f"tok {kind}".strip()
    hover = f' title="{inline(title)}"' if title else ""
    return f'<span class="{classes}"{hover}>{inline(label)}</span>'


def strip(
    labels: Sequence[str],
    titles: Sequence[str],
    special: Sequence[bool] | None = None,
    *,
    chosen: int | None = None,
    limit: int = STRIP_LIMIT,
) -> str:
    """HTML for a row of tokens, two lines high, scrollable; tokens past `limit` are counted, not shown."""
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
    """HTML for a few literal sentences, one paragraph each."""
    return f'<div class="{css}">{"".join(f"<p>{inline(sentence)}</p>" for sentence in sentences)}</div>'
