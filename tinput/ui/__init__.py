"""The part of the app that knows Streamlit: frame, widgets, caches, messages."""
