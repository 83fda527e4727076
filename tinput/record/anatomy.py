"""A model's position schemes, layer by layer, found without reading a weight.

The whole module runs once on a few made-up ids with random numbers in place of large weights. What positions are
computed into, and where that meets content, does not depend on the weights; so the tape of that run tells, at the
model's real depth, which layers rotate, which add a bias, and which do neither.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tinput.errors import BadIds
from tinput.models.memory import hand_back
from tinput.models.skeleton import Skeleton
from tinput.models.tree import tensors_in
from tinput.positions.effects import Add, Bias, Content, Rotate
from tinput.record.front import AttentionCall, Block, Front, run
from tinput.record.injection import Entry, Fit, before_block, fit_rotation, in_attention, neutral, query_and_key
from tinput.record.layouts import by_position
from tinput.record.repeats import Repeats
from tinput.record.tape import LAYOUT, CannotReplay, Op

__all__ = ["Anatomy", "Injection", "Locator", "Stack", "find", "survey"]

# How many ids: a prime, so that no axis of a model has that size by chance; fewer where a table has no more rows.
PROBES = (11, 7, 5, 3)
TIDY = 16  # blocks, after which freed memory is handed back


@dataclass(frozen=True)
class Locator:
    """An operation that another run of the same model makes too: the n-th of its name in its module."""

    module: str
    name: str
    count: int


@dataclass(frozen=True, eq=False)
class Injection:
    """One way in which positions enter, and the layers that it reaches.

    effect: Add, Rotate, Bias or Content; table: the parameter of looked-up positions, or None
    computed: looked up in a table that is not learned: the class computes its values
    learned: parameters are part of what is injected, in one table or in another way
    carriers, sines: where the injected tensors are on any tape of this model; fit: how a rotation pairs dimensions
    """

    effect: type
    layers: tuple[int, ...]
    table: str | None
    computed: bool
    learned: bool
    carriers: tuple[Locator, ...]
    sines: tuple[Locator, ...] = ()
    fit: Fit | None = None
    bend: float | None = None  # how far a bias is from linear in the distance, relative; None for other effects
    n_rows: int | None = None  # of the table of looked-up positions, learned or computed
    first_row: int = 0  # the first token's row in it


@dataclass(frozen=True, eq=False)
class Stack:
    """One stack of blocks: the encoder, the decoder, or the only one."""

    path: str
    paths: tuple[str, ...]  # of its blocks, in the order in which they run; one that runs twice stands twice
    block_class: str
    n_layers: int
    attention_layers: tuple[int, ...]
    injections: tuple[Injection, ...]
    first_attention: (
        int | None
    )  # the layer to trace: the first with attention, or a later one if only that has positions

    def of(self, layer: int) -> list[Injection]:
        """What enters in a layer."""
        return [found for found in self.injections if layer in found.layers and found.effect is not Add]


@dataclass(frozen=True, eq=False)
class Anatomy:
    """What the survey found. stacks: in the order in which they run; error: why it ended early, or empty."""

    stacks: tuple[Stack, ...]
    order: tuple[str, ...]  # the paths of all blocks, in the order in which they were first entered
    error: str = ""


def survey(skeleton: Skeleton) -> Anatomy:
    """Runs the module once without weights and reads where positions enter, by stack and layer."""
    vocabulary, error = skeleton.vocab_size, ""
    for length in PROBES:
        low = min(20, max(0, vocabulary - length - 1))  # past the usual special ids
        ids = torch.arange(low, low + length) % max(vocabulary, 1)
        readers = _Readers(skeleton)
        try:
            front = run(skeleton, ids, read=False, done=readers.see, repeats=Repeats())
        except BadIds as refused:
            error = error or str(refused)
            continue
        error = error or front.error
        if front.blocks:
            readers.end(front)
            order = tuple(dict.fromkeys(block.path for block in front.blocks))
            return Anatomy(tuple(reader.stack() for reader in readers.by_stack.values()), order, front.error)
    return Anatomy((), (), error)


class _Readers:
    """Reads each block while the run goes on, at its attention or else at its end, and lets go of its tensors."""

    def __init__(self, skeleton: Skeleton):
        self._skeleton = skeleton
        self._n_read = 0
        self.by_stack: dict[str, _Reader] = {}

    def see(self, front: Front) -> bool:
        """After an attention call or a block: never the end of the run."""
        blocks = front.blocks
        while self._n_read < len(blocks) - 1:  # over without an attention
            self._read(front, blocks[self._n_read])
        if blocks and self._n_read < len(blocks) and front.attended(blocks[-1]):
            self._read(front, blocks[-1])
        if blocks and self._n_read == len(blocks):
            self._release(front, blocks[-1])
        return False

    def end(self, front: Front) -> None:
        """After the run."""
        for block in front.blocks[self._n_read :]:
            self._read(front, block)

    def _read(self, front: Front, block: Block) -> None:
        self.by_stack.setdefault(block.stack, _Reader(self._skeleton, front)).read(block)
        self._n_read += 1
        self._release(front, block)
        if self._n_read % TIDY == 0:
            hand_back()

    def _release(self, front: Front, block: Block) -> None:
        block.input = block.input.new_empty(0)
        front.tape.release(block.start, block.stop or len(front.tape.ops))


class _Reader:
    """Reads one stack, block by block, while the run goes on."""

    def __init__(self, skeleton: Skeleton, front: Front):
        self._skeleton, self._front = skeleton, front
        self._locate = _Locations(front)
        self.blocks: list[Block] = []
        self._added: list[Injection] = []
        self._found: dict[tuple, tuple[Injection, list[int]]] = {}
        self._attention_layers: list[int] = []

    def read(self, block: Block) -> None:
        """Takes in what enters in a block; before the first also what was added to its input."""
        front = self._front
        if not self.blocks:
            self._added = [self._injection(entry, None) for entry in before_block(front, block)]
        self.blocks.append(block)
        call = next((c for c in front.attentions if c.block is block), None)  # self-attention comes first
        if call is None:
            return
        self._attention_layers.append(block.number)
        for entry in in_attention(front, call):
            key = (entry.kind, *_same(front, entry))
            if key not in self._found:
                self._found[key] = (self._injection(entry, call), [])
            if block.number not in self._found[key][1]:
                self._found[key][1].append(block.number)

    def _injection(self, entry: Entry, call: AttentionCall | None) -> Injection:
        return _injection(self._skeleton, self._front, self._locate, entry, call)

    def stack(self) -> Stack:
        """What was found, once the run is over."""
        layers = tuple(range(len(self.blocks)))
        found = [replace(injection, layers=layers) for injection in self._added]
        found += [replace(injection, layers=tuple(numbers)) for injection, numbers in self._found.values()]
        reached = {layer for _, numbers in self._found.values() for layer in numbers}
        with_positions = [layer for layer in self._attention_layers if layer in reached]
        return Stack(
            self.blocks[0].stack,
            tuple(block.path for block in self.blocks),
            self._front.classes[self.blocks[0].path],
            len(self.blocks),
            tuple(self._attention_layers),
            tuple(found),
            (with_positions or self._attention_layers or [None])[0],
        )


def _injection(
    skeleton: Skeleton,
    front: Front,
    locate: _Locations,
    entry: Entry,
    call: AttentionCall | None,
) -> Injection:
    computed = entry.table is not None and skeleton.initial(entry.table) is not None
    fit = _fit(front, entry, call) if entry.kind is Rotate and call is not None else None
    bend = _bend(entry) if entry.kind is Bias else None
    n_rows, first_row = _table_rows(front, entry)
    return Injection(
        entry.kind,
        (),
        None if computed else entry.table,
        computed,
        not computed and (entry.table is not None or _has_parameters(front, entry)),
        tuple(locate(_outside(front, op)) for op in entry.carriers),
        tuple(locate(_outside(front, op)) for op in entry.sines),
        fit,
        bend,
        n_rows,
        first_row,
    )


def _same(front: Front, entry: Entry) -> tuple:
    """What two layers' entries share when they inject the same: the operation, or, computed anew, the values."""
    if entry.kind is Content:
        return ()
    if all(front.block_at(index) is None for index in entry.key if isinstance(index, int)):
        return entry.key
    value = entry.carriers[0].value
    return (entry.table, tuple(value.shape), float(value.real.double().sum()) if entry.table is None else 0.0)


def _fit(front: Front, entry: Entry, call: AttentionCall) -> Fit | None:
    tape = front.tape
    query, _ = query_and_key(call)
    maker = tape.last(query)
    if maker is None:
        return None
    path = tape.back(maker)
    meetings = {op.index for op in entry.at} & {op.index for op in path}
    try:
        cos, sin = (by_position(part, front.ids.shape[1]) for part in _cos_sin(entry))
    except ValueError:
        return None
    # q itself, or, where it was normed or scaled after the rotation, the last result before that
    whole: list[tuple[Op, Tensor | None]] = [(call.product or call.op, query)]
    for op, argument in whole + [(op, None) for op in reversed(path) if meetings and op.index >= max(meetings)]:
        try:
            after = _rows(op.value if argument is None else argument, front.ids.shape[1])
            before = _rows(neutral(front, entry, op, argument), front.ids.shape[1])
        except (CannotReplay, ValueError):
            continue
        if before.shape == after.shape and (fit := fit_rotation(before, after, cos, sin)) is not None:
            return fit
    return None


def _rows(value: Tensor, seq: int) -> Tensor:
    """q in any of the shapes that models hold it in -> (..., seq, d_head). Raises ValueError."""
    if value.ndim >= 2 and value.shape[-2] == seq:
        return value
    if value.ndim >= 3 and value.shape[-3] == seq:
        return value.transpose(-2, -3)
    raise ValueError(f"{tuple(value.shape)} is not (..., {seq}, d_head)")


def _cos_sin(entry: Entry) -> tuple[Tensor, Tensor]:
    first = entry.carriers[0].value
    return (first.real, first.imag) if first.is_complex() else (first, entry.sines[0].value)


def _bend(entry: Entry) -> float | None:
    """How far a bias is from a straight line in the key's position, relative to its size."""
    value = entry.carriers[0].value
    if value.shape[-1] < 3:
        return None
    last = value.reshape(-1, value.shape[-1])[-1].double()  # the last query's row sees all keys
    steps = last[1:] - last[:-1]
    return float((steps - steps.mean()).abs().max() / steps.abs().max().clamp_min(1e-12))


def _has_parameters(front: Front, entry: Entry) -> bool:
    behind = front.tape.back(entry.carriers[0])
    return any(front.placeholders.name_of(t) for op in behind for t in tensors_in((op.args, op.kwargs)))


def _table_rows(front: Front, entry: Entry) -> tuple[int | None, int]:
    """The size of the table of looked-up positions, and the row of the first token."""
    for op in reversed(front.tape.back(entry.carriers[0])):
        if op.name in ("embedding", "index_select") and op.position_only:
            tensors = list(tensors_in((op.args, op.kwargs)))
            table = next((t for t in tensors if t.is_floating_point()), None)
            index = next((t for t in tensors if not t.is_floating_point()), None)
            if table is not None and index is not None:
                first = index.flatten()[0] if entry.kind is Add else index.min()  # a bias has a row for each distance
                return _n_rows(front, op, table), int(first)
    return None, 0


def _n_rows(front: Front, lookup: Op, table: Tensor) -> int:
    """How many rows a table has; of one that is put together of factors, as many as their axes make."""
    named = front.placeholders.name_of
    if named(table):
        return table.shape[0]
    factors = [t for op in front.tape.back(lookup) for t in tensors_in((op.args, op.kwargs)) if named(t)]
    return torch.broadcast_shapes(*(t.shape[:-1] for t in factors)).numel() if factors else table.shape[0]


def _outside(front: Front, op: Op) -> Op:
    """The operation before a block only rearranged its result: a run that ends in an earlier block has it too."""
    while op.name in LAYOUT and op.inputs and front.block_at(op.index) is not None:
        op = front.tape.ops[op.inputs[-1]]
    return op


class _Locations:
    """Operation -> Locator, counted on as the tape grows."""

    def __init__(self, front: Front):
        self._ops = front.tape.ops
        self._counts: Counter[tuple[str, str]] = Counter()
        self._of: list[Locator] = []

    def __call__(self, op: Op) -> Locator:
        for later in self._ops[len(self._of) : op.index + 1]:
            place = (later.module, later.name)
            self._of.append(Locator(*place, self._counts[place]))
            self._counts[place] += 1
        return self._of[op.index]


def find(front: Front, locator: Locator) -> Op | None:
    """The operation on this tape, or None if this run did not make it."""
    count = 0
    for op in front.tape.ops:
        if op.module == locator.module and op.name == locator.name:
            if count == locator.count:
                return op
            count += 1
    return None
