"""A recording that reads no more than was asked for: over the network, or where q and k are left out.

What a run will need is found before anything is read; q and k are most of it in a large model.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from tinput.errors import NotRecorded
from tinput.models.skeleton import Skeleton
from tinput.models.sources import bytes_said
from tinput.record.anatomy import Anatomy, Stack
from tinput.record.needs import Needs
from tinput.record.recording import needed, record
from tinput.record.trace import Recording

__all__ = ["FREE", "Sparing"]

FREE = 100_000  # bytes of q and k that are read over the network unasked: what a header takes


class Sparing:
    """The recordings of one model. What a few tokens need is found once for each stack, and kept."""

    def __init__(self, skeleton: Skeleton, anatomy: Anatomy):
        self.skeleton, self.anatomy = skeleton, anatomy
        self._few: dict[str, Needs] = {}

    def few(self, stack: Stack) -> Needs:
        """What a trace of three tokens takes: its attention's parameters are those of any text."""
        if stack.path not in self._few:
            ids = torch.arange(min(3, self.skeleton.vocab_size))
            self._few[stack.path] = needed(self.skeleton, self.anatomy, stack, ids)
        return self._few[stack.path]

    def record(
        self, skeleton: Skeleton, stack: Stack, ids: Tensor, positions: Tensor | None, attention: bool | None
    ) -> Recording:
        """`recording.record` by a skeleton of any dtype; attention: as of `Model.trace`."""
        weights = skeleton.weights
        assert weights is not None
        remote = weights.weights.remote
        if not remote and attention is not False:
            return record(skeleton, self.anatomy, stack, ids, positions)
        few = self.few(stack)
        needs = needed(skeleton, self.anatomy, stack, ids, positions, ahead=() if attention is True else few.ahead)
        skeleton.require((*needs.rows, *needs.whole))
        with weights.holding(needs.rows, needs.whole):
            why = ""
            if attention is not True:
                size = weights.size(few.attention - needs.names(False))
                if attention is False or size > FREE:
                    why = f"reading q and k takes {bytes_said(size)} more; ask for them by trace(..., attention=True)"
                elif few.ahead:
                    needs = needed(skeleton, self.anatomy, stack, ids, positions)
            with weights.holding({}, () if why else needs.attention):
                run = functools.partial(record, skeleton, self.anatomy, stack, ids, positions)
                try:
                    return run(needs=needs, without_attention=why)
                except NotRecorded:  # BLT's patcher decides by numbers how the run goes on: then nothing is left out
                    if remote:
                        raise
                    return run(without_attention=why)
