"""The frame around every page: page settings, the sidebar with text and model, and the pages."""

import logging
from pathlib import Path
from urllib.parse import quote_plus, urlencode

import streamlit as st
from streamlit.navigation.page import Page as StreamlitPage

from tinput.errors import TinputError
from tinput.ui import examples, kit, literal, sources, style, takeaway, tools, words

LINK_LIMIT = 4_000  # bytes of text in a link; browsers and proxies refuse much longer addresses

SECTIONS = {  # as the menu shows them, each page's file and title; those under "" stand in the bar itself
    "": {"pipeline": "Pipeline", "tokens": "Tokens", "embeddings": "Embeddings"},
    "Schemes": {
        "sinusoidal": "Sinusoidal",
        "learned": "Learned",
        "rope": "RoPE",
        "alibi": "ALiBi",
        "relative_bias": "Relative bias",
    },
    "Learn": {"lessons": "Lessons"},
    "Compare": {
        "side_by_side": "Side by side",
        "surgery": "Surgery",
        "extrapolate": "Extrapolate",
        "architectures": "Architectures",
    },
}
PAGES = {name: title for section in SECTIONS.values() for name, title in section.items()}
HOME = "pipeline"  # the page of the bare address


def set_text(text: str) -> None:
    st.session_state["text"] = text


def set_model(name: str) -> None:
    st.session_state["model"] = name


def sidebar() -> None:
    """Text, examples, model, large type: the same on every page, and in the address bar."""
    st.html(
        '<p class="brand">tinput<small>What enters the first Transformer block, '
        "and how a model tells positions apart.</small></p>"
    )
    text = st.session_state.get("text")
    fits = len(quote_plus(text or "", errors="replace")) <= LINK_LIMIT
    if fits and not st.session_state.get("linked", True):
        # After a text that no link holds: Streamlit writes into the address bar what is set here, not what was typed
        # while the box was not bound.
        st.session_state["text"] = text
    st.session_state["linked"] = fits
    st.text_area("Text", kit.DEFAULT_TEXT, height=150, key="text", bind="query-params" if fits else None)
    if not fits:
        st.html(literal.paragraphs(["This text is too long for a link: the address bar does not hold it."], "note"))
    with st.container(horizontal=True, gap="small", key="examples"):
        for name, example in examples.EXAMPLES.items():
            st.button(name, on_click=set_text, args=(example,), key=f"example-{name}", type="tertiary")
    by_path = kit.may_type_paths()
    also = ", or the path of a folder that holds a model" if by_path else ""
    kit.model_choice(
        "Model",
        key="model",
        default=sources.DEFAULT_MODEL,
        help="The bundled six differ in their position scheme alone. Any model on the Hub can be typed by its id, "
        "gpt2, owner/name or owner/name@revision: only the bytes that a text needs are read.",
    )
    st.html(literal.paragraphs([f"Or type a model's id on the Hub{also}."], "note"))
    with st.popover("Models on the Hub", type="tertiary", icon=":material/cloud:"):
        kit.note(
            "Read when they are chosen, and kept: a tokenizer, and some kilobytes of weights. "
            "A gated one is shown to those whom its owner let in, with their token."
        )
        with st.container(key="known", gap=None):
            for name, schemes in sources.known():
                gated = " · gated" if name in sources.GATED else ""
                label = f"{name} · {', '.join(words.label(scheme) for scheme in schemes)}{gated}"
                st.button(label, on_click=set_model, args=(name,), key=f"hub-{name}", type="tertiary")
    st.toggle("Large type", key="large", bind="query-params")
    st.toggle("Presenter", key="present", bind="query-params", help="No controls, large type; Esc ends it")


st.set_page_config(page_title="tinput", page_icon=str(Path(__file__).with_name("icon.svg")), layout="wide")


def stop_presenting() -> None:
    st.session_state["present"] = False


def link() -> str:
    """The address of this view, below the server's own."""
    query = urlencode([(key, value) for key in st.query_params for value in st.query_params.get_all(key)])
    return f"{name}?{query}" if query else name


def page(name: str, title: str) -> StreamlitPage:
    path = "home" if name == HOME else name
    return st.Page(f"../../pages/{name}.py", title=title, url_path=path, default=name == HOME)


pages = {title: [page(*item) for item in section.items()] for title, section in SECTIONS.items()}
# Streamlit answers for the first page at the bare address alone; by its name too it is a page that no menu shows.
pages[""].append(st.Page(f"../../pages/{HOME}.py", title=PAGES[HOME], url_path=HOME, visibility="hidden"))
chosen = st.navigation(pages, position="top")
name = next(name for name, title in PAGES.items() if title == chosen.title)
shown = takeaway.begin(name, PAGES[name])
with st.sidebar, shown.inside([]):  # what stands at the side is not the page
    sidebar()
    along = st.container(key="along")
shown.large = kit.large()
st.html(style.css(kit.large(), kit.presenting()))  # after the switches: a link may have set them
if kit.presenting():  # out of sight, as all controls are; the key works
    st.button("End presenter mode", on_click=stop_presenting, shortcut="Escape", key="present-off")
try:
    chosen.run()
except kit.Ended:  # all is said
    pass
except TinputError as error:  # what a page asks for besides may fail too: a network that is gone, a file that changed
    kit.trouble(str(error))
except Exception as error:  # a fault of ours: the server's log has the traceback, a visitor has no use for it
    logging.getLogger("tinput").exception("The page %s failed.", name)
    kit.trouble(
        "Something in tinput itself failed here: it is a fault of this program, not of your text.",
        "Text and model stay as they are. Try another setting, text or model; the server's log says what failed.",
    )
    if st.get_option("client.showErrorDetails") != "none":  # the tests have it on: a fault shall not pass unseen
        st.exception(error)
finally:  # a page may end early, and what it has shown by then can be taken along
    shown.link = link()
    with along:
        tools.page(shown, fits=st.session_state["linked"])
