"""Figures: arrays, windows and labels in, a Plotly figure out. Nothing here knows a model or Streamlit.

Every figure is untitled (the page has the heading), transparent, readable in the light and the dark theme, and
carries in `layout.meta` its `description` (the alt text) and its `note` (dtype, what was left out).
`large=True` sets the type for a lecture room. `to_csv` and `to_npz` export what a figure shows.

heat.py          a matrix
panels.py        several beside each other
before_after.py  before, after and the difference
linked.py        the same of several models
curves.py        lines, bars, stacked bars
points.py        points on a plane
dials.py         pairs of dimensions as clock hands
states.py        which part is in which state, place by place
path.py          the path of a text into the first block

matrix.py        what the first four are made of
style.py         what all are made of: sizes, axes, `Sketch`, in which a figure is drawn
colour.py        which colours stand for which values
labels.py        labels are text
table.py         the numbers of a figure as CSV
arrays.py        and as NPZ
"""

from tinput.figures.arrays import csv_to_npz, to_npz
from tinput.figures.before_after import before_after
from tinput.figures.colour import OKABE_ITO, limits
from tinput.figures.curves import bars, lines, stacked
from tinput.figures.dials import dials
from tinput.figures.heat import heatmap, similarity, weights
from tinput.figures.labels import literal
from tinput.figures.linked import Ruler, linked
from tinput.figures.matrix import CELLS, cells
from tinput.figures.panels import panels
from tinput.figures.path import path
from tinput.figures.points import scatter
from tinput.figures.states import states
from tinput.figures.table import to_csv

__all__ = [
    "CELLS",
    "OKABE_ITO",
    "Ruler",
    "bars",
    "before_after",
    "cells",
    "csv_to_npz",
    "dials",
    "heatmap",
    "limits",
    "lines",
    "linked",
    "literal",
    "panels",
    "path",
    "scatter",
    "similarity",
    "stacked",
    "states",
    "to_csv",
    "to_npz",
    "weights",
]
