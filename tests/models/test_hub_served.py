"""A model read from the Hub is the model in the folder, bit for bit; nothing is read twice, nor more than is wanted."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import census, makers, tiny
from tests import hub_jobs as jobs
from tests.hub import Client, client
from tests.hub_repos import TEXT, dequantised, fp8, llama_405b, minilm, pickled, rewrite, row
from tests.hub_world import same

# What is served, and how it is made: each has another way from the file's tensors to the module's.
MADE: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "gpt2": ("gpt2", {}),  # a prefix, and matrices that lie the other way round
    "fused q, k and v": ("phi3", {}),
    "fused by head": ("gpt_neox", {}),
    "t5": ("t5", {}),  # two stacks, a table of biases
    "marian": ("marian", {}),  # a sinusoid that is in no file
    "alibi": ("bloom", {}),
    "tied": ("gemma", {"tie_word_embeddings": True}),
    "in shards": ("llama", {"save": {"max_shard_size": "60KB"}}),
    "in bfloat16": ("qwen2", {"dtype": "bfloat16"}),
    "experts": ("deepseek_v3", {}),
    "two layer types": ("gemma3_text", {}),
    "scores of content": ("xlnet", {}),
    "no attention": ("mamba", {}),
    "a patcher first": ("blt", {}),
    "a first block across latents": ("perceiver", {}),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Callable[[str], Path]:
    """name of MADE -> folder, with a tokenizer."""

    @functools.cache
    def make(name: str) -> Path:
        folder = tmp_path_factory.mktemp("made") / "model"
        kind, how = MADE[name]
        save = how.get("save", {})
        changes = {key: value for key, value in how.items() if key not in ("save", "dtype")}
        model = tiny.build(kind, **changes) if kind in tiny.CONFIGS else census.build(kind)
        if "dtype" in how:
            model = model.bfloat16()
        model.save_pretrained(folder, **save)
        makers.byte_level().save_pretrained(folder)
        return folder

    return make


@pytest.mark.parametrize("name", MADE)
def test_equal_from_the_hub_and_from_the_folder(running, made, name):
    hub, run = running
    hub.heal()
    folder, repo = made(name), f"made/{name.replace(' ', '-').replace(',', '')}"
    hub.add(repo, folder)
    for options in ({}, {"attention": False}, {"attention": True}, {"dtype": "checkpoint", "attention": True}):
        given = {"text": jobs.TEXT} if MADE[name][0] in tiny.CONFIGS else {"text": None, "ids": [1, 5, 7, 5]}
        from_hub, from_folder = (run(jobs.seen, where, **given, **options) for where in (repo, str(folder)))
        assert same(from_hub, from_folder)
        assert from_hub["revision"] == hub.repos[repo].commit
        if options.get("attention"):
            assert from_hub["arrays"] == from_folder["arrays"]  # q, k, scores and weights too
            assert from_hub["facts"] == from_folder["facts"]


def test_an_opus_mt_is_read_with_its_own_pieces(running, made, tmp_path):
    hub, run = running
    folder = rewrite(made("marian"), tmp_path / "marian")
    (folder / "tokenizer.json").unlink()
    hub.add("made/opus-mt", makers.marian(folder))
    found = run(jobs.seen, "made/opus-mt")
    assert found["facts"]["pieces"][-1] == "</s>"
    assert found["scheme"] == "sinusoidal"
    assert same(found, run(jobs.seen, str(folder)))


def test_both_stacks_are_equal(running, made):
    hub, run = running
    hub.add("made/t5-stacks", made("t5"))
    for stack in ("encoder", "decoder"):
        found = [run(jobs.seen, where, stack=stack) for where in ("made/t5-stacks", str(made("t5")))]
        assert same(*found)
        assert found[0]["facts"]["stack"] == stack


def test_a_published_checkpoint_is_equal_and_little_of_it_is_read(running):
    hub, run = running
    try:
        folder = minilm()
    except ModuleNotFoundError as missing:
        pytest.skip(str(missing))
    hub.heal()
    hub.add("published/all-MiniLM-L6-v2", folder)
    found = run(jobs.seen, "published/all-MiniLM-L6-v2")
    assert same(found, run(jobs.seen, str(folder)))
    assert found["scheme"] == "learned"
    assert found["facts"]["ok"] is True
    weights = sum(request.sent for request in hub.requests if request.path.endswith("model.safetensors"))
    assert weights < 0.003 * (folder / "model.safetensors").stat().st_size
    hub.requests.clear()
    attention = run(jobs.seen, "published/all-MiniLM-L6-v2", attention=True)
    assert attention["arrays"] == run(jobs.seen, str(folder), attention=True)["arrays"]
    projections = 3 * 4 * (384 * 384 + 384)  # q, k and v, float32
    assert hub.sent < 1.05 * projections


# --- quantized weights, and pickles


def test_fp8_leaves_the_embedding_as_it_is(running, made, tmp_path):
    """Published FP8 checkpoints keep the table of embeddings; what enters the block is exact."""
    hub, run = running
    folder = fp8(made("llama"), tmp_path / "fp8")
    hub.add("made/fp8", folder)
    found = run(jobs.seen, "made/fp8")
    assert same(found, run(jobs.seen, str(folder)))
    plain = run(jobs.seen, str(made("in bfloat16")))
    assert set(found["arrays"]) >= {"block_input", "recorded_0_cos"}
    assert plain["facts"]["checkpoint_dtype"] == "bfloat16"


def test_deepseeks_fp8_is_the_model_of_its_numbers_q_and_k_too(running, made, tmp_path):
    """DeepSeek-V3 as it is published: projections in blocks of FP8, norms and embedding in bfloat16."""
    hub, run = running
    folder = fp8(made("experts"), tmp_path / "fp8")
    plain = dequantised(folder, tmp_path / "plain")
    hub.add("made/deepseek-fp8", folder)
    for attention in (False, True):
        found, expected = (run(jobs.seen, where, attention=attention) for where in ("made/deepseek-fp8", str(plain)))
        assert found["arrays"] == expected["arrays"]
        assert found["facts"]["ok"] is True
        assert ({"attention_q", "attention_k"} <= set(found["arrays"])) == attention


def test_an_fp8_embedding_is_scaled_or_refused_but_never_raw_codes(running, made, tmp_path):
    hub, run = running
    folder = fp8(made("llama"), tmp_path / "fp8", embedding=True)
    hub.add("made/fp8-embedding", folder)
    outcomes = [run.outcome(jobs.seen, where) for where in ("made/fp8-embedding", str(folder))]
    for outcome in outcomes:
        if outcome.kinds:
            assert "BadFile" in outcome.kinds, outcome.shown
            assert "F8_E4M3" in outcome.said
            continue
        import numpy as np

        whole = run(jobs.seen, str(made("llama")))
        dtype, shape, raw = outcome.value["arrays"]["block_input"]
        values, exact = (
            np.frombuffer(bytes_, dtype).reshape(shape) for bytes_ in (raw, whole["arrays"]["block_input"][2])
        )
        assert np.abs(values - exact).max() <= np.abs(exact).max() / 16  # three bits after the point


def test_a_conversion_to_safetensors_is_used(running, made, tmp_path):
    hub, run = running
    repo = hub.add("made/converted", pickled(made("gpt2"), tmp_path / "pickled"))
    repo.push(made("gpt2"), "refs/pr/3", title="Adding `safetensors` variant of this model")
    hub.heal()
    assert same(run(jobs.seen, "made/converted"), run(jobs.seen, str(made("gpt2"))))
    assert not any("pytorch_model.bin" in request.path and request.sent for request in hub.requests)


def test_a_pickle_is_read_when_it_is_asked_for(running, made, tmp_path):
    hub, run = running
    hub.add("made/pickled", pickled(made("gpt2"), tmp_path / "pickled"))
    run(jobs.opened, "made/pickled", allow_pickle=True)
    assert same(run(jobs.traced, "made/pickled"), run(jobs.seen, str(made("gpt2"))))


def test_pickles_in_shards_are_read_when_they_are_asked_for(running, made, tmp_path):
    import torch
    from safetensors.torch import load_file

    hub, run = running
    folder = tmp_path / "pickles"
    shutil.copytree(made("gpt2"), folder)
    names = sorted(tensors := load_file(folder / "model.safetensors"))
    where = {name: f"pytorch_model-0000{1 + n % 2}-of-00002.bin" for n, name in enumerate(names)}
    for file in set(where.values()):
        torch.save({name: tensors[name] for name in names if where[name] == file}, folder / file)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    (folder / "model.safetensors").unlink()
    hub.add("made/pickles", folder)
    assert "Pickled" in run.outcome(jobs.seen, "made/pickles").kinds
    run(jobs.opened, "made/pickles", allow_pickle=True)
    assert same(run(jobs.traced, "made/pickles"), run(jobs.seen, str(made("gpt2"))))


# --- files as they are found


@pytest.mark.parametrize("length", [99_991, 99_992, 99_993, 100_000, 250_000])
def test_a_header_is_read_whole_however_long(running, made, tmp_path, length):
    """99,992 bytes and the eight of their number are just what is read first."""
    hub, run = running
    folder = rewrite(made("llama"), tmp_path / "long")
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    padded = raw[8:begin].rstrip() + b" " * (length - len(raw[8:begin].rstrip()))
    path.write_bytes(length.to_bytes(8, "little") + padded + raw[begin:])
    hub.add(f"made/header-{length}", folder)
    assert same(run(jobs.seen, f"made/header-{length}"), run(jobs.seen, str(made("llama"))))


def test_weights_of_another_name_are_found(running, made, tmp_path):
    hub, run = running
    folder = rewrite(made("llama"), tmp_path / "named")
    (folder / "model.safetensors").rename(folder / "llama-bf16.safetensors")
    hub.add("made/named", folder)
    assert same(run(jobs.seen, "made/named"), run(jobs.seen, str(folder)))


def test_a_tokenizer_of_a_class_that_wants_its_own_file_has_it(running, made, tmp_path):
    """tokenizer.json nearly always says all, but not to ESM's class, which reads vocab.txt."""
    hub, run = running
    folder = rewrite(made("llama"), tmp_path / "esm")
    pieces = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWC", "<mask>"]
    (folder / "vocab.txt").write_text("\n".join(pieces))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "EsmTokenizer"}))
    hub.add("made/esm", folder)
    found = run(jobs.seen, "made/esm", "MKTAY")
    assert found["facts"]["pieces"] == ["<cls>", *"MKTAY", "<eos>"]
    assert same(found, run(jobs.seen, str(folder), "MKTAY"))


# --- nothing is read twice


@pytest.fixture(scope="module")
def second(running) -> Iterator[Client]:
    """Another process that shares the first one's caches."""
    hub, run = running
    with client(hub, home=run.home) as other:
        yield other


def test_the_second_time_asks_for_the_commit_alone_and_offline_for_nothing(running, second, made):
    hub, first = running
    hub.heal()
    hub.add("owner/again", made("in shards"))
    expected = first(jobs.seen, "owner/again", attention=True)
    for run in (first, second):  # in the same process, and in another one
        hub.heal()
        assert run(jobs.seen, "owner/again", attention=True)["arrays"] == expected["arrays"]
        assert [request.path.split("?")[0] for request in hub.requests] == ["/api/models/owner/again/revision/main"]

    hub.stop()
    try:
        with client(hub, home=first.home, env={"HF_HUB_OFFLINE": "1"}) as offline:
            outcome = offline.outcome(jobs.seen, "owner/again", attention=True)
            assert not outcome.kinds, outcome.shown
            assert outcome.value["arrays"] == expected["arrays"]
            assert outcome.connections == 0
            told = offline.outcome(jobs.seen, "owner/other")
        assert "Unreachable" in told.kinds, told.shown
        assert told.connections == 0
        assert "HF_HUB_OFFLINE" in told.said
        # no network, though nobody said so: what is kept serves
        found = first(jobs.seen, "owner/again", attention=True)
        assert found["arrays"] == expected["arrays"]
    finally:
        hub.start()


def test_other_tokens_cost_their_rows_alone(running, made):
    hub, run = running
    hub.add("made/rows", made("llama"))
    run(jobs.seen, "made/rows", None, ids=[3, 4, 5])
    hub.requests.clear()
    run(jobs.traced, "made/rows", None, ids=[5, 4, 3, 4])
    assert not hub.requests
    run(jobs.traced, "made/rows", None, ids=[3, 200])
    assert hub.sent == 64 * 4, hub.requests  # one row


def test_processes_at_once_share_a_cache(running, second, made):
    hub, first = running
    hub.heal()
    hub.add("owner/shared", made("llama"))
    hub.delay = 0.02
    for run in (first, second):
        run.send(jobs.seen, "owner/shared", attention=True)
    outcomes = [run.receive() for run in (first, second)]
    assert not [outcome.shown for outcome in outcomes if outcome.kinds]
    assert outcomes[0].value["arrays"] == outcomes[1].value["arrays"]
    hub.heal()
    again = second(jobs.seen, "owner/shared", attention=True)
    assert again["arrays"] == outcomes[0].value["arrays"]
    assert len(hub.requests) == 1


@pytest.mark.parametrize("limit", [300_000, 0], ids=["a small limit", "no room at all"])
def test_a_limit_in_bytes_holds_and_changes_no_result(running, made, tmp_path, limit):
    hub, run = running
    for name in ("llama", "gpt2", "in bfloat16"):
        hub.add(f"room-{limit}/{name.replace(' ', '-')}", made(name))
        for _ in range(2):
            job = ("seen", f"room-{limit}/{name.replace(' ', '-')}")
            found = run(jobs.with_cache, str(tmp_path / "cache"), str(limit), *job, attention=True)
            assert found["arrays"] == run(jobs.seen, str(made(name)), attention=True)["arrays"]
        assert sum(run(jobs.files_below, str(tmp_path)).values()) <= limit


def test_a_folder_that_cannot_be_written_changes_no_result(running, made):
    hub, run = running
    hub.add("room/closed", made("llama"))
    job = ("seen", "room/closed")
    for _ in range(2):
        found = run(jobs.with_cache, "/proc/no-writing-here", None, *job, attention=True)
        assert found["arrays"] == run(jobs.seen, str(made("llama")), attention=True)["arrays"]


# --- 405 billion parameters


def test_the_405b_costs_its_rows(running, tmp_path_factory):
    hub, run = running
    hub.heal()
    folder = llama_405b(tmp_path_factory.mktemp("405b") / "model")
    hub.add("meta/llama-405b", folder)
    hub.move_cdn()  # another test's may have been one that does not answer to many ranges
    found = run(jobs.seen, "meta/llama-405b", TEXT)
    _, shape, raw = found["arrays"]["block_input"]
    assert shape == (100, 16_384)
    ids = [int(n) for n in _array(found["arrays"]["ids"])]
    import torch

    expected = torch.stack([row(token) for token in ids]).float().numpy()
    assert raw == expected.tobytes()
    assert found["facts"]["ok"] is True, found["facts"]["agreement"]
    tokenizer = sum(r.sent for r in hub.requests if "tokenizer" in r.path)
    least = (
        len(set(ids)) * 2 * 16_384
        + 100_000
        + sum((folder / file).stat().st_size for file in ("config.json", "model.safetensors.index.json"))
    )
    assert hub.sent - tokenizer <= 1.05 * least, hub.requests
    assert sum("tokenizer" not in r.path for r in hub.requests) <= 12, hub.requests


def _array(packed: tuple[str, tuple[int, ...], bytes]) -> Any:
    import numpy as np

    dtype, shape, raw = packed
    return np.frombuffer(raw, dtype).reshape(shape)
