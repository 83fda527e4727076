"""What a scheme's page starts from: the model's own numbers where it has the scheme, else the textbook's at its sizes.

Every answer says which of the two it is (`own`), so that a page can label a what-if. `scheme` is the page's module of
`tinput.positions`: no scheme is named here. A file for each place where positions may enter:

added.py   vectors added to the embedding, and a learned table of them
turned.py  the rotation of q and k
biases.py  what is added to the scores
sizes.py   what a configuration says of the model's sizes
"""

from tinput.ui.given.added import Table, Vectors, looked_at, table, vectors
from tinput.ui.given.biases import (
    Buckets,
    Heads,
    buckets,
    distances,
    heads,
    is_causal,
    slopes,
    weights,
    weights_quantile,
)
from tinput.ui.given.sizes import context
from tinput.ui.given.turned import Rotation, pairings, rotation, scalings, turning

__all__ = [
    "Buckets",
    "Heads",
    "Rotation",
    "Table",
    "Vectors",
    "buckets",
    "context",
    "distances",
    "heads",
    "is_causal",
    "looked_at",
    "pairings",
    "rotation",
    "scalings",
    "slopes",
    "table",
    "turning",
    "vectors",
    "weights",
    "weights_quantile",
]
