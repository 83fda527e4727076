"""The app's own CSS. Colours come from the theme: `currentColor` mixed with nothing, so light and dark both work."""

__all__ = ["LARGE", "css"]

LARGE = 1.3  # how much bigger large type is, in the page and in figures

_CSS = """
.stMainBlockContainer { padding: 3.6rem 2.2rem 4rem; max-width: 1800px; }
.stMainBlockContainer [data-testid="stVerticalBlock"] { gap: 0.75rem; }
[data-testid="stSidebarHeader"] { height: 2.6rem; margin-bottom: 0; padding-top: .6rem; }
[data-testid="stSidebarUserContent"] { padding-top: 0; }
[data-testid="stSidebarUserContent"] [data-testid="stVerticalBlock"] { gap: 0.7rem; }
.st-key-examples { column-gap: .9rem !important; row-gap: 0 !important; margin-top: -.45rem; }
.st-key-examples button { min-height: 1.6rem; padding: 0; text-decoration: underline; text-underline-offset: .2em;
  text-decoration-color: color-mix(in srgb, currentColor 35%, transparent); }
.st-key-known button { min-height: 1.55rem; padding: .1rem 0; }
/* Streamlit takes the near edge off a segment beside the chosen one, which may stand in another row. */
[data-testid="stButtonGroup"] button[data-variant="segmented_control"]:not([data-selected], :last-child) {
  border-right: 1px solid color-mix(in srgb, currentColor 20%, transparent) !important; }
[data-testid="stButtonGroup"] button[data-variant="segmented_control"]:not([data-selected], :first-child) {
  border-left: 1px solid color-mix(in srgb, currentColor 20%, transparent) !important; }
.question { font-size: 1.7rem; font-weight: 650; line-height: 1.25; margin: 0 0 .55rem; letter-spacing: -.01em; }
.panel-title { font-size: 1.2rem; font-weight: 650; margin: .9rem 0 0; padding-top: .9rem;
  border-top: 1px solid color-mix(in srgb, currentColor 15%, transparent); }
.brand { font-size: 1.35rem; font-weight: 700; letter-spacing: -.02em; margin: 0; }
.brand small { display: block; font-size: .82rem; font-weight: 400; letter-spacing: 0; opacity: .75;
  line-height: 1.35; }
/* Two rows of tokens, never a part of a third: .95rem is a token's type, 1.45 its line, .24rem its padding. */
.strip { display: flex; flex-wrap: wrap; gap: .25rem; max-height: calc(2 * (.95rem * 1.45 + .24rem) + .25rem);
  overflow-y: auto; margin-bottom: .55rem; scroll-snap-type: y mandatory; scrollbar-width: thin; }
.strip > * { scroll-snap-align: start; }
/* While there is more below, the end of the last row fades; a strip that does not scroll has no such timeline. */
@supports (animation-timeline: scroll(self)) {
  .strip { animation: more-below linear both; animation-timeline: scroll(self); }
}
@keyframes more-below { from, 98% { mask-image: linear-gradient(#000, #000), linear-gradient(to right, #000 60%, #0000);
  mask-size: 100% 52%, 100% 48%; mask-position: top, bottom; mask-repeat: no-repeat; } to { mask-image: none; } }
.strip.tall, .strip.aligned { animation: none; scroll-snap-type: none; }
.strip.tall { max-height: none; }
.strip.tall .tok { max-width: 100%; white-space: pre-wrap; overflow-wrap: anywhere; }
.tok { font-family: "Source Code Pro", monospace; font-size: .95rem; line-height: 1.45; padding: .12rem .42rem;
  white-space: pre; unicode-bidi: isolate; border-radius: .3rem; max-width: 24rem; overflow: hidden;
  text-overflow: ellipsis; background: color-mix(in srgb, currentColor 9%, transparent); }
.tok:hover { background: color-mix(in srgb, currentColor 20%, transparent); }
.tok.special { background: transparent; outline: 1px dashed color-mix(in srgb, currentColor 45%, transparent);
  outline-offset: -1px; }
.strip.aligned { max-height: 19rem; column-gap: .3rem; row-gap: .75rem; }
.part { display: flex; flex-direction: column; gap: .15rem; }
.part .line { display: flex; gap: .15rem; min-height: 1.62rem; border-bottom: 2px solid var(--line); }
.part.names .line { font-size: .9rem; padding-right: .5rem; white-space: nowrap; }
.part .tok { flex: 1 0 auto; text-align: center; max-width: none; }
.part.names { max-width: 17rem; }
.part.names .line { display: block; overflow: hidden; text-overflow: ellipsis; line-height: 1.62rem; }
.narrow .badges { flex-direction: column; align-items: flex-start; gap: .25rem; }
.narrow .badge { display: block; max-width: 100%; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.narrow .badge i { display: inline-block; margin-right: .45rem; vertical-align: -.08rem; }
.narrow .badge:hover { white-space: normal; }
.fixed { margin: 0; line-height: 2.45rem; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
[data-testid="stColumn"]:has([class*="st-key-remove-"]) { position: relative; }
[class*="st-key-remove-"] { position: absolute; right: 0; top: -.3rem; z-index: 1; width: auto !important; }
[class*="st-key-remove-"] button { min-height: 1.6rem; padding: 0 .2rem; }
[class*="st-key-remove-"] p { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.fixed small { display: block; font-size: .875rem; line-height: 1.6rem; }
.tok.none { opacity: .45; background: transparent; }
.part:hover .tok, .tok.lit, .part.lit .tok { background: color-mix(in srgb, #E69F00 45%, transparent); }
.tok.chosen { outline: 2px solid currentColor; outline-offset: -2px; font-weight: 600; }
.more { font-size: .95rem; opacity: .75; padding: .12rem .3rem; }
.badges { display: flex; flex-wrap: wrap; gap: .5rem; align-items: center; }
.badge { display: inline-flex; align-items: center; gap: .45rem; font-size: .95rem; padding: .2rem .7rem;
  border-radius: 1rem; border: 1px solid color-mix(in srgb, currentColor 22%, transparent); }
.badge i { width: .75rem; height: .75rem; border-radius: 50%; flex: none; }
.notice p { font-size: 1rem; line-height: 1.5; margin: 0 0 .6rem; overflow-wrap: anywhere; }
.notice p::before { content: ""; }
.note p { font-size: .92rem; line-height: 1.45; margin: 0 0 .3rem; opacity: .8; overflow-wrap: anywhere; }
.whatif { border-left: .3rem solid #E69F00; padding: .45rem .9rem; font-size: 1rem; line-height: 1.45;
  background: color-mix(in srgb, #E69F00 11%, transparent); border-radius: .3rem; }
.whatif p, .trouble p { margin: 0; overflow-wrap: anywhere; }
.trouble p + p { margin-top: .3rem; opacity: .8; font-size: 1rem; }
.trouble { border-left: .3rem solid #D55E00; padding: .7rem 1rem; font-size: 1.05rem; line-height: 1.5;
  background: color-mix(in srgb, #D55E00 11%, transparent); border-radius: .3rem; }
.empty { border: 1px dashed color-mix(in srgb, currentColor 35%, transparent); border-radius: .5rem;
  padding: 2.5rem 1.5rem; text-align: center; font-size: 1.15rem; }
.empty p { margin: 0; }
.marked { font-size: 1.15rem; line-height: 2.1; white-space: pre-wrap; overflow-wrap: anywhere;
  unicode-bidi: plaintext; text-align: start; }
.marked span { border-radius: .25rem; padding: .15rem .05rem; }
/* A formula is as large as its column lets it be, and what is wider still can be scrolled, and seen to. */
.stMarkdown:has(.katex-display) { container-type: inline-size; width: 100%; }
.katex-display > .katex { font-size: min(1.21em, 7.1cqi); }
.katex-display { overflow-x: auto; scrollbar-width: thin; }
.continuation { border-top: 1px solid color-mix(in srgb, currentColor 13%, transparent); padding: .6rem 0; }
.continuation .badge { margin-bottom: .35rem; }
.written { margin: 0; font-size: 1.05rem; line-height: 1.55; white-space: pre-wrap; overflow-wrap: anywhere;
  unicode-bidi: isolate; }
.written span { opacity: .65; }
.stage { margin: .5rem 0 .35rem; font-size: 1rem; }
.facts { border-collapse: collapse; width: 100%; font-size: 1rem; }
.facts th, .facts td { text-align: left; padding: .35rem .8rem .35rem 0; vertical-align: top; overflow-wrap: anywhere;
  border-bottom: 1px solid color-mix(in srgb, currentColor 13%, transparent); }
.facts th, .facts td:first-child { overflow-wrap: break-word; }
.facts:has(th:nth-child(6)) { font-size: .9rem; }
.facts:has(th:nth-child(6)) td { min-width: 5.4rem; padding-right: .6rem; }
.facts tr.differs td { background: color-mix(in srgb, #E69F00 16%, transparent); }
.facts tr.differs td:first-child::after { content: " (differs)"; font-size: .85rem; opacity: .8; }
/* Streamlit writes a chart's text in a grey that is too faint for a lecture room; text of another colour stays. */
.stPlotlyChart text[style*="rgb(128, 132, 149)"] { fill: currentColor !important; }
/* PNG is a word under each picture; the path of a text has nothing to zoom into. */
.modebar-btn[data-title^="Download"], .st-key-figure-path .modebar-container { display: none !important; }
[data-testid="stSidebarUserContent"] .note p { font-size: .85rem; margin: 0; }
.lesson { font-size: 1rem; opacity: .75; margin: 0 0 .2rem; }
.st-key-shown { display: none; }
.options { font-size: 1.15rem; line-height: 1.7; margin: .2rem 0 .6rem; padding-left: 1.8rem; }
.verdict { font-size: 1.15rem; line-height: 1.45; padding: .55rem .95rem; border-radius: .3rem;
  border-left: .3rem solid #999; background: color-mix(in srgb, currentColor 7%, transparent); }
.verdict.right { border-color: #2E9E4F; background: color-mix(in srgb, #2E9E4F 13%, transparent); }
.verdict.wrong { border-color: #D55E00; background: color-mix(in srgb, #D55E00 11%, transparent); }
/* What can be taken along: words that look like the tertiary buttons beside them. */
.along { font-size: .9rem; opacity: .8; margin: 0 0 -.6rem; }
[class*="st-key-tools-"] { column-gap: .9rem !important; row-gap: 0 !important; }
[class*="st-key-tools-"] button { min-height: 1.7rem; padding: 0; }
[class*="st-key-tools-"] :is(button, button p) { font-size: .92rem; line-height: 1.7rem; }
button.take { font: inherit; font-size: .92rem; color: inherit; border: 0; background: none; cursor: pointer;
  min-height: 1.7rem; padding: 0; margin-right: .9rem; }
button.take:last-child { margin-right: 0; }
button.take:hover { color: #0B5CAD; color: var(--st-primary-color, #0B5CAD); }
.st-key-listen { position: absolute; }
/* What stands in an empty list of the columns is a model that is open: it looks like one that was chosen. */
:is(.st-key-other, .st-key-third, .st-key-fourth) [role="group"] { background: transparent; }
:is(.st-key-other, .st-key-third, .st-key-fourth) input::placeholder { color: inherit; opacity: 1; }
.second { display: flex; flex-wrap: wrap; gap: .5rem; align-items: center; }
"""


# Presenter mode: what is shown stays, what is used goes: off-screen not `display: none`, so that keys still work.
_PRESENTER = """
[data-testid="stSidebar"], [data-testid="stHeader"], .stPageLink, .modebar-container, [data-testid="stExpander"],
  [data-testid="stElementToolbar"] { display: none !important; }
.stMainBlockContainer { padding-top: 1.6rem; }
:is(.stButton, .stButtonGroup, .stRadio, .stCheckbox, .stSlider, .stNumberInput, .stSelectbox, .stMultiSelect,
  .stTextInput, .stTextArea, .stDownloadButton, .stPopover) { position: fixed !important; left: -300vw; }
[data-testid="stElementContainer"]:has(.stButton, .stButtonGroup, .stRadio, .stCheckbox, .stSlider, .stNumberInput,
  .stSelectbox, .stMultiSelect, .stTextInput, .stTextArea, .stDownloadButton, .stPopover),
  [class*="st-key-tools-"] { position: fixed !important; left: -300vw; }
/* A column of nothing but a control leaves its place to the one beside it. */
[data-testid="stColumn"]:has(> [data-testid="stVerticalBlock"] > [data-testid="stElementContainer"]:only-child
  :is(.stSlider, .stNumberInput, .stButtonGroup, .stSelectbox)) { position: fixed !important; left: -300vw; }
"""


def css(large: bool, presenting: bool = False) -> str:
    """The style sheet; `large` scales every rem on the page (figures are scaled by the kit)."""
    size = f"html {{ font-size: {LARGE * 100:.0f}% !important; }}" if large else ""
    return f"<style>{_CSS}{size}{_PRESENTER if presenting else ''}</style>"
