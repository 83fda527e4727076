"""One forward pass, as far as it is wanted: the blocks entered, the attention calls reached, all on a tape.

No architecture is named. A *block* is a member of a `ModuleList` that is handed content (the outermost such); the
first one entered is the first Transformer block. An *attention call* is a scaled dot-product call, or a softmax over
scores that a product of two content tensors made.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tinput.errors import BadIds, NotRecorded, TinputError
from tinput.models.skeleton import Placeholders, Skeleton, undisturbed
from tinput.models.tree import tensors_in
from tinput.record.repeats import Repeats
from tinput.record.tape import Flow, Op, Stop, Tape

__all__ = ["PRODUCTS", "AttentionCall", "Block", "Front", "run"]

PRODUCTS = frozenset(["matmul", "__matmul__", "__rmatmul__", "bmm", "baddbmm", "einsum"])


@dataclass(eq=False)
class Block:
    """A block that was entered. `stack` is the path of its ModuleList; `number` counts within the stack."""

    stack: str
    number: int
    path: str
    input: Tensor
    start: int  # how many operations were on the tape by then
    stop: int | None = None  # and when it was left
    makers: tuple[int, ...] = ()  # what made its input


@dataclass(eq=False)
class AttentionCall:
    """Where scores become weights. `op` is the softmax or the fused call; `product` is q k^T (None when fused)."""

    op: Op
    product: Op | None
    block: Block | None


@dataclass(eq=False)
class Front:
    """What one run left behind."""

    tape: Tape
    placeholders: Placeholders
    ids: Tensor  # (1, seq) int64
    blocks: list[Block] = field(default_factory=list)
    attentions: list[AttentionCall] = field(default_factory=list)
    classes: dict[str, str] = field(default_factory=dict)  # module path -> class name
    leaves: set[str] = field(default_factory=set)  # paths of modules without children
    error: str = ""  # why the run ended early, when it did so by itself
    refused: TinputError | None = None  # the same, when it was for want of a tensor

    @property
    def stacks(self) -> list[str]:
        """The ModuleLists of blocks, in the order in which they were entered."""
        return list(dict.fromkeys(block.stack for block in self.blocks))

    def attended(self, block: Block) -> bool:
        """Whether a block, the last one, has come to its attention."""
        return bool(self.attentions) and self.attentions[-1].block is block

    def block_at(self, index: int) -> Block | None:
        """The block in which an operation ran; None before, between and after blocks."""
        for block in self.blocks:
            if block.start <= index and (block.stop is None or index < block.stop):
                return block
        return None


def run(
    skeleton: Skeleton,
    ids: Tensor,
    *,
    read: bool,
    positions: Tensor | None = None,
    decoder: bool = False,
    done: Callable[[Front], bool] | None = None,
    leave_out: Iterable[str] = (),
    only: Collection[str] | None = None,
    repeats: Repeats | None = None,
) -> Front:
    """Runs the module on ids (seq,) until `done` says so at a block's entry or end or an attention call, or to the end.

    decoder: only the decoder of an encoder-decoder is wanted: the encoder is not run, unless attention takes what it
        makes (T5Gemma 2 looks at both texts in one)
    leave_out: paths of blocks that will not be reached
    only: the parameters that may be read; what comes of others is NaN, and nobody is to look at it
    repeats: what comes after a block's attention is not run again where it is like what has run; only with read=False
    Raises BadIds, BadFile and NotRecorded.
    """
    one = functools.partial(_run, skeleton, ids, read, positions, decoder, done, tuple(leave_out), only, repeats)
    front = one(alone=decoder)
    return one(alone=False) if decoder and _takes_absent(front) else front


def _run(
    skeleton: Skeleton,
    ids: Tensor,
    read: bool,
    positions: Tensor | None,
    decoder: bool,
    done: Callable[[Front], bool] | None,
    leave_out: Iterable[str],
    only: Collection[str] | None,
    repeats: Repeats | None,
    *,
    alone: bool,
) -> Front:
    """One run; alone: a decoder without its encoder."""
    with undisturbed():
        model, placeholders = skeleton.copy(read, leave_out, only)
        front = Front(Tape(placeholders.resolve), placeholders, ids[None])
        tape = front.tape
        inputs = _inputs(skeleton, front.ids, positions, decoder, alone)
        tape.source(front.ids, Flow.CONTENT)
        if "encoder_outputs" in inputs:
            tape.source(inputs["encoder_outputs"].last_hidden_state, Flow.ABSENT)
        if positions is not None:
            tape.source(next(inputs[name] for name in inputs if name.endswith("position_ids")), Flow.POSITION)
        for buffer in model.buffers():
            if not buffer.is_floating_point() and buffer.dtype != torch.bool and _counts(buffer):
                tape.source(buffer, Flow.POSITION)
        finish = done or (lambda _: False)
        tape.on_op = functools.partial(_on_op, front, finish)
        _watch(model, front, finish, repeats)
        try:
            thread = contextlib.nullcontext() if read else _one_thread()
            with torch.no_grad(), torch.autocast("cpu", enabled=False), thread, tape:
                model(**inputs)
        except Stop:
            pass
        except TinputError as error:  # a tensor that cannot be had: what came before it still shows
            if not front.blocks or not read:
                raise
            front.refused, front.error = error.with_traceback(None), str(error)  # its frames would keep the tape
        except Exception as error:  # a model's code raises anything
            if not front.blocks and read:
                raise _explained(error, ids) from error
            front.error = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
        finally:  # no circles: what was read goes with the front, and does not wait for the garbage collector
            tape.on_op = None
            for module in model.modules():
                vars(module).pop("forward", None)
        return front


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """A survey's tensors are so small that a second thread costs more than it saves, most of all on a busy server."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _takes_absent(front: Front) -> bool:
    """Whether what is read of a decoder, its blocks' input and first attention, depends on the encoder's output."""
    firsts = {call.block: call for call in reversed(front.attentions) if call.block is not None}
    ops = [call.product or call.op for call in firsts.values()]
    ops += [front.tape.ops[index] for block in front.blocks[:1] for index in block.makers]
    return any(op.has(Flow.ABSENT) for op in ops)


def _inputs(skeleton: Skeleton, ids: Tensor, positions: Tensor | None, decoder: bool, alone: bool) -> dict[str, Any]:
    inputs: dict[str, Any] = {"input_ids": ids}
    accepted = skeleton.parameters
    if "use_cache" in accepted or "kwargs" in accepted:
        inputs["use_cache"] = False
    if skeleton.config.is_encoder_decoder and "decoder_input_ids" in accepted:
        inputs["decoder_input_ids"] = ids
        if alone and "encoder_outputs" in accepted:  # what a decoder's first block is given does not depend on them
            from transformers.modeling_outputs import BaseModelOutput

            table: Any = skeleton.model.get_input_embeddings()
            width = table.weight.shape[-1]
            inputs["encoder_outputs"] = BaseModelOutput(last_hidden_state=torch.zeros(*ids.shape, width))
    if positions is not None:
        name = "decoder_position_ids" if decoder and "decoder_position_ids" in accepted else "position_ids"
        if name not in accepted:
            raise BadIds(f"{type(skeleton.model).__name__} computes its positions itself; leave `positions` out.")
        inputs[name] = positions[None]
    return inputs


def _counts(buffer: Tensor) -> bool:
    """A buffer of 0, 1, 2, ...: position ids kept by the module."""
    flat = buffer.flatten()
    return flat.numel() > 1 and bool((flat[1:] != flat[:-1]).any())


def _watch(model: nn.Module, front: Front, finish: Callable[[Front], bool], repeats: Repeats | None) -> None:
    """Wraps each module's forward, so that calls of `layer.forward(...)` are seen too, which hooks would miss."""
    open_block: list[Block] = []
    lists = {name: len(module) for name, module in model.named_modules() if isinstance(module, nn.ModuleList)}
    counts: dict[str, int] = {}
    parts: set[str] = set()  # lists whose members alternate with another's: each round of them is one block

    def is_part(parent: str) -> bool:
        if parent not in parts and parent not in counts and front.blocks:
            current = front.blocks[-1].stack
            beside = current.rpartition(".")[0] == parent.rpartition(".")[0]
            if beside and counts[current] + 1 < lists[current]:
                parts.add(parent)
        return parent in parts

    def wrap(path: str, module: nn.Module) -> None:
        inner = module.forward
        parent = path.rpartition(".")[0]

        @functools.wraps(inner)
        def forward(*args: Any, **kwargs: Any) -> Any:
            before, front.tape.module = front.tape.module, path
            block = None
            if parent in lists and not open_block:
                if is_part(parent):
                    block = front.blocks[-1]
                elif path not in front.leaves:
                    block = _block(front, parent, path, counts, args, kwargs)
            if block is not None:
                open_block.append(block)
                block.stop = None
                if not front.blocks or front.blocks[-1] is not block:
                    front.blocks.append(block)
                    with torch._C.DisableTorchFunction():
                        finished = finish(front)
                        if not finished:  # it may be written into; a copy of ours is no step of the model's
                            block.input = block.input.clone()
                    if finished:
                        raise Stop
            try:
                if repeats is not None and open_block and block is None and front.attended(open_block[0]):
                    out = repeats.call(front, module, inner, args, kwargs)
                else:
                    out = inner(*args, **kwargs)
            finally:
                front.tape.module = before
                if block is not None:
                    block.stop = len(front.tape.ops)
                    open_block.pop()
            if block is not None:
                with torch._C.DisableTorchFunction():  # what is read here is no part of the run
                    finished = finish(front)
                if finished:
                    raise Stop
            return out

        module.forward = forward  # type: ignore[method-assign]

    for path, module in model.named_modules():
        front.classes[path] = type(module).__name__
        if not any(True for _ in module.children()):
            front.leaves.add(path)
        if path:
            wrap(path, module)


def _block(front: Front, stack: str, path: str, counts: dict[str, int], args: tuple, kwargs: dict) -> Block | None:
    """The block that a module is, if it is handed content: floating point, (batch, seq, ...) or in another order."""
    seq = front.ids.shape[1]
    for tensor in tensors_in((args, kwargs)):
        flow = front.tape.flow_of(tensor)
        long_enough = seq <= max(tensor.shape[:-1]) or seq == tensor.shape[-1]  # padded to a window; channels first
        if tensor.is_floating_point() and tensor.ndim >= 3 and flow & Flow.CONTENT and long_enough:
            counts[stack] = counts.get(stack, -1) + 1
            makers = front.tape.makers(tensor)
            return Block(stack, counts[stack], path, tensor, len(front.tape.ops), makers=makers)
    return None


def _on_op(front: Front, finish: Callable[[Front], bool], op: Op) -> None:
    call = None
    if op.name == "scaled_dot_product_attention":
        call = AttentionCall(op, None, front.block_at(op.index))
    elif op.name == "softmax" and op.has(Flow.CONTENT):
        product = _product_behind(front, op)
        if product is not None:
            call = AttentionCall(op, product, front.block_at(op.index))
    if call is not None:
        front.attentions.append(call)
        if finish(front):
            raise Stop


def _product_behind(front: Front, softmax: Op) -> Op | None:
    """The product of q and k whose scores this softmax turns into weights: (..., query, key), both content."""
    tape = front.tape
    scores = softmax.out
    earlier = front.attentions[-1].op.index if front.attentions else -1
    if not isinstance(scores, Tensor) or scores.ndim < 3:
        return None
    queries = scores.shape[-2]
    block = front.block_at(softmax.index)  # scores and weights are of one block
    for op in reversed(tape.back(softmax, since=max(earlier + 1, block.start if block else 0))):
        if op.name not in PRODUCTS or not isinstance(op.out, Tensor) or op.out.ndim < 3:
            continue
        factors = [t for t in tensors_in((op.args, op.kwargs)) if t.is_floating_point()][-2:]
        from_content = all(tape.ops[i].has(Flow.CONTENT) for t in factors for i in op.reads[id(t)][:1])
        if len(factors) == 2 and from_content and all(op.reads[id(t)] for t in factors) and op.out.shape[-2] == queries:
            return op
    return None


def _explained(error: Exception, ids: Tensor) -> TinputError:
    first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    if isinstance(error, IndexError) or "out of range" in first or "must match the size" in first:
        return BadIds(f"The model cannot take {len(ids):,} tokens ({first}); shorten the text.")
    return NotRecorded(f"The model's forward pass ended before its first block ({type(error).__name__}: {first}).")
