"""The part of the app that knows Streamlit: frame, widgets, caches, messages.

The frame around every page:

frame.py          page settings, the sidebar with text and model, the list of pages
style.py          CSS
examples.py       texts to begin with
sources.py        which models are offered, and who may type a path
opening.py        from what was typed to an open model, or what to do where it cannot be had
loading.py        reading that takes long, with a bar and a stop
jobs.py           computing that takes long, the same
cache.py          models and traces, shared by all sessions
warm.py           what is done before anyone waits for it

What every page is made of:

kit.py            the one module that a page imports for it: start here
place.py          panels, sentences, boxes
controls.py       controls, bound to the address bar
shows.py          pictures and tables
formula.py        formulas
literal.py        text that shows as typed
words.py          words for what the recorder found
badges.py         which scheme, and how near the textbook is
whatif.py         the label on numbers that are not recorded

What some pages start from, so that they hold no maths:

given/            the schemes' pages: the model's own numbers, or the textbook's at its sizes
injected.py       ALiBi and Relative bias: attention without and with a bias
configuration.py  any page of a model without weights
columns.py        Side by side: its columns and controls
compare.py        Side by side: the pictures
facts.py          Side by side: the lines of its table
cuts.py           Surgery: the kinds of change and their controls
surgery.py        Surgery: what a change does, a value followed back
extrapolate.py    Extrapolate: losses
unseen.py         Extrapolate: what was never met in training
writing.py        Extrapolate: continuations
architectures.py  Architectures
lessons/          Lessons, a file each

What can be taken along:

takeaway.py       notes what a page has shown
tools.py          the buttons
onefile.py        the page as one HTML file
notebook.py       the page as a notebook
"""
