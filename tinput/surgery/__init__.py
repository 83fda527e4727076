"""What if: a model's own attention with positions set otherwise, scores taken apart, a value followed back.

    model = tinput.open_model("tinput/rope")
    trace = model.trace("the cat sat on the mat")
    tinput.surgery.move(model, trace, trace.positions + 100)   # an Attention: no score changes
    tinput.surgery.swap(model, trace, "alibi")                 # another scheme on the same q and k

layer.py     another scheme, other positions, another order
parts.py     what the layer is made of: its rotation, its bias, q and k before it
change.py    what that changes: scores and weights before and after
pairs.py     a rotated score as a sum over frequency pairs
chain.py     where a value came from: from bytes to one number, as Python that gives it

None of these numbers is the model's own: they say what it would do.
"""

from tinput.surgery.chain import Link, input_chain, opening, program, weight_chain
from tinput.surgery.change import Change
from tinput.surgery.layer import Choice, bundled_table, choices, is_causal, move, shuffle, shuffled, swap, unmasked
from tinput.surgery.pairs import Pairs, pairs_of, split
from tinput.surgery.parts import own_rotation, turn

__all__ = [
    "Change",
    "Choice",
    "Link",
    "Pairs",
    "bundled_table",
    "choices",
    "input_chain",
    "is_causal",
    "move",
    "opening",
    "own_rotation",
    "pairs_of",
    "program",
    "shuffle",
    "shuffled",
    "split",
    "swap",
    "turn",
    "unmasked",
    "weight_chain",
]
