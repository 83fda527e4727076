"""The recorder: a forward pass -> Trace.

tape.py       every tensor operation, and what each result depends on
front.py      one run of transformers' module, as far as it is wanted
injection.py  where positions enter
anatomy.py    the schemes of every layer, found without a weight
repeats.py    what that run leaves out: modules that are like one that has run
naming.py     the words for what was found there
stages.py     the steps from ids to the first block
attention.py  q, k, scores and weights of the first attention layer
between.py    what stands between q k and the softmax: scale, cap, mask, sinks
layouts.py    one order of axes for what models lay out in many
injected.py   what each way in which positions enter adds, rotates or biases
recording.py  all of it together
trace.py      the values that come out
needs.py      which parameters that takes, before any is read
sparing.py    a recording that reads no more than was asked for
outline.py    what follows from the configuration alone
instead.py    the same with other vectors added in place of positions
"""

from tinput.record.anatomy import Anatomy, Injection, Stack, survey
from tinput.record.attention import Attention
from tinput.record.instead import Instead, with_vectors
from tinput.record.outline import Outline, outline
from tinput.record.recording import needed, record
from tinput.record.stages import Stage
from tinput.record.trace import LayerEffect, Recording, Trace

__all__ = [
    "Anatomy",
    "Attention",
    "Injection",
    "Instead",
    "LayerEffect",
    "Outline",
    "Recording",
    "Stack",
    "Stage",
    "Trace",
    "needed",
    "outline",
    "record",
    "survey",
    "with_vectors",
]
