"""The server: `streamlit run app.py`, or `python app.py`. What the first visitor would wait for is loaded at its start.

An `st.App`, because a folder named `pages` beside a main script would start Streamlit's old multipage mode, where a
link to a page that is a fresh server's first request runs that page without its frame.
"""

from contextlib import asynccontextmanager
from threading import Thread

import streamlit as st

from tinput.ui.warm import warm_up


@asynccontextmanager
async def lifespan(_app):
    Thread(target=warm_up, daemon=True, name="warm-up").start()
    yield


app = st.App("tinput/ui/frame.py", lifespan=lifespan)

if __name__ == "__main__":
    app.run()
