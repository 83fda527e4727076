"""open_model: from a name or a folder to a model that can be asked what enters its first block."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tinput.agree import Clues, compare, formula
from tinput.arguments import count, flag, whole_numbers
from tinput.errors import BadFile, BadIds, BadText, NotFound, NotRecorded, NoWeights, TooLong
from tinput.models import files, tokenizers
from tinput.models.headers import DTYPES
from tinput.models.named import ModuleWeights, Source
from tinput.models.skeleton import Skeleton
from tinput.models.sources import weights_of
from tinput.positions import Add, Effect
from tinput.record import (
    Anatomy,
    Instead,
    Outline,
    Stack,
    Trace,
    outline,
    survey,
    with_vectors,
)
from tinput.record.naming import UNKNOWN, reason_of, scheme_of, usable_length
from tinput.record.sparing import Sparing
from tinput.tokens import Tokens, tokenize

__all__ = ["UNKNOWN", "Model", "open_model", "scheme_of"]


def open_model(
    name_or_folder: str | Path,
    revision: str | None = None,
    *,
    allow_pickle: bool = False,
    token: bool | None = None,
) -> Model:
    """A bundled model ("tinput/rope"), a folder with a checkpoint, or one on the Hub ("gpt2"); reads no weights.

    revision: a branch, tag or commit of a model on the Hub; allow_pickle: read weights that are pickles alone, as
    tensors only (of a model on the Hub, all of them are downloaded); token: False to ask the Hub without a token
    Raises NotFound, NotAllowed, Unreachable, Unknown, BadFile, BadModel: each a sentence with the next step. A model
    without weights that can be read opens, and says so when a trace is asked for.
    """
    if not isinstance(name_or_folder, (str, Path)):
        raise NotFound(f"A model is named by a string or a path, not by {type(name_or_folder).__name__}.")
    allow_pickle = flag(allow_pickle, "allow_pickle")
    return Model(files.find(name_or_folder, revision, token=token), allow_pickle=allow_pickle)


class Model:
    """A model whose input can be recorded. Holds no weights; safe to share among threads.

    name: as it was asked for; folder; revision; bundled; config: config.json as a mapping
    weights: where its tensors come from; None with the reason in `no_weights` (NoWeights, or Pickled) if there are none
    """

    def __init__(self, checkpoint: files.Checkpoint, *, allow_pickle: bool = False):
        self.checkpoint = checkpoint
        self.name, self.folder = checkpoint.name, checkpoint.folder
        self.revision, self.bundled = checkpoint.revision, checkpoint.bundled
        self.weights: Source | None = None
        self.no_weights: NoWeights | None = None
        try:
            self.weights = weights_of(checkpoint, allow_pickle=allow_pickle)
        except NoWeights as error:
            self.no_weights = error.with_traceback(None)
        self._hf_config = files.configuration(checkpoint)
        self._lock = threading.RLock()
        self._skeletons: dict[torch.dtype, Skeleton] = {}

    def __repr__(self) -> str:
        return f"Model({self.name!r})"

    # --- what it is

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """The configuration as a plain mapping, defaults filled in by transformers."""
        return self._hf_config.to_dict()

    @property
    def model_type(self) -> str:
        """transformers' name of the architecture."""
        return self._hf_config.model_type

    @property
    def class_name(self) -> str:
        """The name of the module's class."""
        return type(self._skeleton(torch.float32).model).__name__

    @functools.cached_property
    def vocab_size(self) -> int:
        """How many ids there are embeddings for."""
        return self._skeleton(torch.float32).vocab_size

    @functools.cached_property
    def checkpoint_dtype(self) -> str:
        """The dtype that most bytes are in, by torch's name: of all files, or of the shard with the token table."""
        if self.weights is None:
            said = getattr(self._hf_config, "dtype", None)
            return str(said).removeprefix("torch.") if said is not None else UNKNOWN
        infos = list(self.weights.infos_at_hand().values())
        if self.remote:
            table = self._module_weights().names_in_file(self.embedding_name)[0]  # reads the header of its shard
            shard = self.weights.info(table).file
            infos = [info for info in self.weights.infos_at_hand().values() if info.file == shard]
        by_dtype: dict[str, int] = {}
        for info in infos:
            by_dtype[info.dtype] = by_dtype.get(info.dtype, 0) + info.stop - info.start
        most = max(by_dtype, key=lambda dtype: by_dtype[dtype])
        dtype = DTYPES[most][1] if most in DTYPES else None
        return most.lower() if dtype is None else str(dtype).removeprefix("torch.")

    @property
    def remote(self) -> bool:
        """Whether weights are read over the network, so that what is large is read only when it is asked for."""
        return self.weights is not None and self.weights.remote

    # --- how it tells positions apart

    @functools.cached_property
    def anatomy(self) -> Anatomy:
        """Where positions enter, by stack and layer; found without reading a weight."""
        with self._lock:
            return survey(self._skeleton(torch.float32))

    @functools.cached_property
    def _sparing(self) -> Sparing:
        return Sparing(self._skeleton(torch.float32), self.anatomy)

    def stack(self, name: str | None = None) -> Stack:
        """A stack of blocks: "encoder", "decoder", or the first. Raises BadIds for one that the model has not got."""
        stacks = self.anatomy.stacks
        if not stacks:
            raise BadFile(f"{self.name}: the first block was not found ({self.anatomy.error or 'no list of layers'}).")
        if name is None:
            return stacks[0]
        place = {"encoder": 0, "decoder": len(stacks) - 1}.get(name)
        if place is None:
            raise BadIds(f'There is no stack {name!r}; choose "encoder" or "decoder".')
        if len(stacks) < 2 and (name == "encoder") == self._decoder_only:
            raise BadIds(f"{self.name} has no {name}; leave `stack` out.")
        return stacks[place]

    @property
    def stacks(self) -> tuple[str, ...]:
        """("encoder", "decoder") where there are two; otherwise the one that there is."""
        if len(self.anatomy.stacks) > 1:
            return ("encoder", "decoder")
        return ("decoder" if self._decoder_only else "encoder",)

    def _stack_name(self, stack: Stack) -> str:
        return self.stacks[0] if stack is self.anatomy.stacks[0] else self.stacks[-1]

    @property
    def _decoder_only(self) -> bool:
        name, both = self.class_name, self.config.get("is_encoder_decoder")  # Gemma 3 is made for generation alone
        alone = "CausalLM" in name or "LMHead" in name or ("ConditionalGeneration" in name and not both)
        return alone or bool(self.config.get("is_decoder"))

    @property
    def scheme(self) -> str:
        """The scheme that it is named by: a key of SCHEMES, or "unknown"."""
        return self.schemes[0]

    @property
    def schemes(self) -> tuple[str, ...]:
        """All that it uses, in the order in which they enter."""
        found = [scheme_of(injection) for injection in self.stack().injections]
        return tuple(dict.fromkeys(found)) or (scheme_of(None),)

    @property
    def layer_schemes(self) -> tuple[str, ...]:
        """One a layer: what enters there, else what was added before the first block, else that nothing does."""
        stack = self.stack()
        added = next((scheme_of(found) for found in stack.injections if found.effect is Add), scheme_of(None))
        return tuple(
            next(
                (scheme_of(found) for found in stack.of(layer)),
                added if layer in stack.attention_layers else scheme_of(None),
            )
            for layer in range(stack.n_layers)
        )

    @property
    def reason(self) -> str:
        """One sentence: how the scheme was found."""
        return reason_of(self.stack())

    @property
    def usable_length(self) -> int | None:
        """How many tokens the table of positions has rows for; None where there is no table."""
        return usable_length(self.stack())

    # --- tokens

    @functools.cached_property
    def _tokenizer(self) -> tuple[Any, str]:
        return tokenizers.load(self.folder, self.checkpoint.hub)

    @property
    def tokenizer(self) -> Any:
        """transformers' tokenizer. Raises BadFile where the folder has none."""
        found, reason = self._tokenizer
        if found is None:
            raise BadFile(reason)
        return found

    def tokenize(self, text: str, *, add_special_tokens: bool = True) -> Tokens:
        """text -> Tokens. Raises BadText (a lone surrogate), BadFile (no tokenizer)."""
        return tokenize(self.tokenizer, text, add_special_tokens=add_special_tokens)

    # --- weights

    def _module_weights(self) -> ModuleWeights:
        """The tensors by the module's names. Raises NoWeights."""
        weights = self._skeleton(torch.float32).weights
        if weights is None:
            assert self.no_weights is not None
            raise type(self.no_weights)(*self.no_weights.args, **vars(self.no_weights)) from None
        return weights

    def embedding_rows(self, index: Tensor) -> Tensor:
        """Rows of the token table, index (n,) int64 -> (n, width) float32, as stored: not scaled, not normed."""
        return self._module_weights().rows(self.embedding_name, index).float()

    @functools.cached_property
    def embedding_name(self) -> str:
        """The token table's name in the module."""
        model, size = self._skeleton(torch.float32).model, self.vocab_size
        table, named = model.get_input_embeddings(), model.named_modules()  # Perceiver's are its latents: then by size
        found = min(named, key=lambda item: (item[1] is not table, getattr(item[1], "num_embeddings", None) != size))
        return f"{found[0]}.weight"

    def table_rows(self, name: str, index: Tensor) -> Tensor:
        """Rows of any table by the module's name, index (n,) int64 -> (n, width) float32."""
        return self._module_weights().rows(name, index).float()

    def table_size(self, name: str) -> int:
        """How many rows a table has."""
        return self._module_weights().shape(name)[0]

    # --- the recording

    def trace(
        self,
        text: str | None = None,
        *,
        ids: Sequence[int] | Tensor | None = None,
        positions: Sequence[int] | Tensor | None = None,
        stack: str | None = None,
        dtype: str | torch.dtype = torch.float32,
        add_special_tokens: bool = True,
        attention: bool | None = None,
    ) -> Trace:
        """Runs the model on a text, or on ids, as far as its first attention layer, and says what entered.

        positions: (seq,) position ids to use in place of the model's own; stack: "encoder" or "decoder"
        dtype: "float32", or "checkpoint" for the file's own
        attention: whether to read q and k of the first attention layer; None: unless that is much to read over the
        network (`attention_bytes` says how much); where they are not read, trace.attention_reason says so
        Raises BadText, BadIds, TooLong (more tokens than positions), NoWeights, BadFile, NotRecorded.
        """
        flag(add_special_tokens, "add_special_tokens")
        if attention is not None:
            flag(attention, "attention")
        if (text is None) == (ids is None):
            raise BadIds("Give a text, or ids=[...]: one of the two.")
        tokens = None if text is None else self.tokenize(text, add_special_tokens=add_special_tokens)
        numbers = whole_numbers(tokens.ids if tokens is not None else ids, "ids")
        if not len(numbers):
            raise BadText("There is no token to trace; type some text.")
        chosen = None if positions is None else whole_numbers(positions, "positions")
        if chosen is not None and len(chosen) != len(numbers):
            raise BadIds(f"There are {len(numbers)} ids and {len(chosen)} positions; give one position for each id.")
        self._module_weights()  # or it says why there is nothing to trace
        where = self.stack(stack)
        skeleton = self._skeleton(self._dtype(dtype))
        try:
            with torch.autocast("cpu", enabled=False):  # whatever the caller's code runs in
                found = self._sparing.record(skeleton, where, numbers, chosen, attention)
        except (BadIds, NotRecorded) as error:
            usable = usable_length(where)
            if usable is not None and chosen is None and len(numbers) > usable:
                raise TooLong(
                    f"The text has {len(numbers):,} tokens and {self.name} has positions for {usable:,}; "
                    f"shorten it to {usable:,} tokens.",
                    usable,
                ) from error
            if usable is not None and chosen is not None and int(chosen.max()) >= usable:
                raise BadIds(
                    f"There is no position {int(chosen.max()):,} in {self.name}, which has {usable:,} of them, counted "
                    "from 0; choose others."
                ) from error
            raise
        textbook, reason, agreement = compare(found, len(numbers), self._clues(skeleton, where))
        return Trace(
            model=self.name,
            revision=self.revision,
            dtype=str(skeleton.dtype).removeprefix("torch."),
            checkpoint_dtype=self.checkpoint_dtype,
            stack=self._stack_name(where),
            ids=numbers,
            tokens=tokens,
            positions=found.positions,
            stages=found.stages,
            block_input=found.block_input,
            effects=found.effects,
            attention=found.attention,
            attention_reason=found.attention_reason,
            textbook=textbook,
            textbook_reason=reason,
            agreement=agreement,
            notes=found.notes,
            versions=_versions(),
            causal=found.causal,
        )

    def attention_bytes(self, stack: str | None = None) -> int:
        """How many bytes of files the q and k of the first attention layer take, beside what a trace reads anyway."""
        where, weights = self.stack(stack), self._module_weights()
        weights.shape(self.embedding_name)  # reads the header that tells how wide numbers are
        return weights.size(self._sparing.few(where).attention)

    def outline(self, length: int, stack: str | None = None) -> Outline:
        """What positions inject into a text of `length` tokens, from the configuration alone: no weight is read.

        For a model whose weights are not to be had, or before they are asked for. Raises BadIds, TooLong, NotRecorded.
        """
        length = count(length, "tokens")
        where, skeleton = self.stack(stack), self._skeleton(torch.float32).without_weights()
        usable = usable_length(where)
        if usable is not None and length > usable:
            raise TooLong(f"{self.name} has positions for {usable:,} tokens; choose {usable:,} or fewer.", usable)
        found = outline(skeleton, self.anatomy, where, length, ahead=self._sparing.few(where).ahead)
        textbook, reason, agreement = compare(found, length, self._clues(skeleton, where))
        return Outline(found.positions, found.effects, textbook, reason, agreement)

    # --- what if

    def formula(self, trace: Trace, effect: int = 0) -> Callable[[Tensor], Effect]:
        """The formula behind one of a trace's effects: positions (seq,), whole or not, -> the effect there.

        Raises NotRecorded where no formula gives what was recorded.
        """
        clues = self._clues(self._skeleton(torch.float32), self.stack(trace.stack))
        try:
            return formula(trace.effects[effect], trace, len(trace.ids), clues)
        except ValueError as error:
            raise NotRecorded(f"There is no formula to go by here: {error}.") from error

    def with_vectors(self, trace: Trace, vectors: Tensor) -> Instead:
        """What enters the first block, and q and k, had `vectors` (seq, width) been added in place of positions.

        They go through the model's own operations from where it adds its positions; where it adds none, they are
        added to what enters the block. Raises NotRecorded.
        """
        if self.remote and trace.attention is None:
            raise NotRecorded(f"It takes q and k, and {trace.attention_reason}.")
        dtype = getattr(torch, trace.dtype)
        return with_vectors(self._skeleton(dtype), self.anatomy, self.stack(trace.stack), trace.ids, vectors)

    def _clues(self, skeleton: Skeleton, stack: Stack) -> Clues:
        return Clues.of(skeleton, stack, self.config, own=self.bundled)

    def _dtype(self, dtype: str | torch.dtype) -> torch.dtype:
        if dtype == "checkpoint":
            dtype = self.checkpoint_dtype
        found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
        if not isinstance(found, torch.dtype) or not found.is_floating_point or found.itemsize < 2:
            raise BadIds(f'A trace cannot run in {dtype}; choose another, such as "float32".')
        return found

    def _skeleton(self, dtype: torch.dtype) -> Skeleton:
        with self._lock:
            if dtype not in self._skeletons:
                self._skeletons[dtype] = Skeleton(self._hf_config, self.weights, dtype)
            return self._skeletons[dtype]


@functools.cache
def _versions() -> dict[str, str]:
    import transformers

    from tinput import __version__

    return {"tinput": __version__, "torch": torch.__version__, "transformers": transformers.__version__}
