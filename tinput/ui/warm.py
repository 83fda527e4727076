"""What takes seconds once per process (torch, transformers, plotly, a first trace), done before anyone waits for it."""

import gc
import logging

__all__ = ["warm_up"]


def warm_up(name: str | None = None) -> None:
    """Import what the pages need and trace a word with `name` (default: the model that the app opens with).

    A failure is logged and nothing more: the page that needs the same thing will say so in its own words.
    """
    try:
        import plotly.graph_objects  # noqa: F401

        import tinput
        from tinput.ui.sources import DEFAULT_MODEL

        tinput.open_model(name or DEFAULT_MODEL).trace("warm")
    except Exception:  # whatever it is, the server itself can still start
        logging.getLogger(__name__).warning("the warm-up did not finish", exc_info=True)
    # Streamlit collects garbage after every run of a page, and walks all that torch and transformers made on import: a
    # quarter of a second each time. What is here now stays for good, so it need not be looked at again.
    gc.collect()
    gc.freeze()
