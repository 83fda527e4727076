"""FP8 codes and their scales: each published layout against numbers worked out by hand, and by a loop over blocks."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests import tiny
from tests.hub_repos import fp8
from tinput.errors import BadFile
from tinput.models.named import ModuleWeights
from tinput.models.scales import block_of, scale_of, scaled
from tinput.models.weights import Weights

CODES = torch.tensor([[1.0, 2.0, -3.0], [0.5, 4.0, 8.0]]).to(torch.float8_e4m3fn)  # exact in FP8


@pytest.mark.parametrize(
    ("scale", "block", "expected"),
    [
        (torch.tensor(2.0), None, [[2.0, 4.0, -6.0], [1.0, 8.0, 16.0]]),
        (torch.tensor([0.5, 10.0]), None, [[0.5, 1.0, -1.5], [5.0, 40.0, 80.0]]),
        (torch.tensor([[0.5], [10.0]]), None, [[0.5, 1.0, -1.5], [5.0, 40.0, 80.0]]),
        # blocks of 1 row and 2 columns: the second block of a row is cut short
        (torch.tensor([[1.0, 10.0], [2.0, 3.0]]), (1, 2), [[1.0, 2.0, -30.0], [1.0, 8.0, 24.0]]),
    ],
    ids=["one", "a row each", "a row each, as a column", "a block each"],
)
def test_each_layout_by_hand(scale, block, expected):
    whole = scaled(CODES, scale, (2, 3), block, None, "w")
    assert whole.dtype == torch.float32
    assert whole.tolist() == expected
    index = torch.tensor([1, 0, 1])
    assert scaled(CODES[index], scale, (2, 3), block, index, "w").tolist() == [expected[i] for i in (1, 0, 1)]


def test_blocks_against_a_loop():
    torch.manual_seed(0)
    shape, block = (300, 200), (128, 64)
    codes = torch.randn(shape).to(torch.float8_e4m3fn)
    scale = torch.rand(3, 4)
    expected = torch.empty(shape)
    for i in range(shape[0]):
        for j in range(shape[1]):
            expected[i, j] = codes[i, j].float() * scale[i // 128, j // 64]
    assert torch.equal(scaled(codes, scale, shape, block, None, "w"), expected)
    rows = torch.tensor([299, 0, 128])
    assert torch.equal(scaled(codes[rows], scale, shape, block, rows, "w"), expected[rows])


@pytest.mark.parametrize("block", [None, (2, 2), (128, 128)])
def test_scales_that_do_not_fit_are_refused(block):
    with pytest.raises(BadFile, match=r"scales of tensor 'w', \[2, 2\], fit no layout"):
        scaled(CODES, torch.ones(2, 2), (2, 3), block, None, "w")


def test_names_and_block_sizes():
    names = {"a.weight", "a.weight_scale_inv", "b.weight", "b.weight_scale"}
    assert scale_of("a.weight", names) == "a.weight_scale_inv"
    assert scale_of("b.weight", names) == "b.weight_scale"
    assert scale_of("c.weight", names) is None
    assert block_of({"weight_block_size": [128, 64]}) == (128, 64)
    for nothing in ({}, None, {"weight_block_size": None}, {"weight_block_size": [128, 0]}, {"weight_block_size": "x"}):
        assert block_of(nothing) is None


def test_a_projection_in_fp8_is_read_as_numbers_by_the_modules_name(tmp_path):
    """DeepSeek's layout: the module asks for `weight`, and gets codes times scales; without scales it gets none."""
    oracle = tiny.make("llama", tmp_path)
    name = "model.layers.0.self_attn.q_proj.weight"
    state = {key: value.clone() for key, value in oracle.state_dict().items()}
    codes, scale = state[name].to(torch.float8_e4m3fn), torch.rand(2, 2) + 0.5
    oracle.config.quantization_config = {"quant_method": "fp8", "weight_block_size": [32, 32]}
    save_file(state | {name: codes, f"{name}_scale_inv": scale}, tmp_path / "model.safetensors")
    weights = ModuleWeights(Weights(tmp_path), oracle)
    expected = codes.float() * scale.repeat_interleave(32, 0).repeat_interleave(32, 1)
    assert torch.equal(weights.tensor(name), expected)
    assert torch.equal(weights.rows(name, torch.tensor([63, 5])), expected[[63, 5]])
    save_file(state | {name: codes}, tmp_path / "model.safetensors")
    with pytest.raises(BadFile, match=r"F8_E4M3 codes \(fp8\)"):
        ModuleWeights(Weights(tmp_path), oracle).tensor(name)


@pytest.mark.filterwarnings("ignore")
def test_experts_in_fp8_are_put_together_as_numbers(tmp_path):
    """The checkpoint holds each expert by itself and the module all of them: each part is scaled, then joined."""
    oracle = tiny.make("deepseek_v3", tmp_path / "model")
    folder = fp8(tmp_path / "model", tmp_path / "fp8")
    oracle.config.quantization_config = {"quant_method": "fp8", "weight_block_size": [32, 32]}
    weights = ModuleWeights(Weights(folder), oracle)
    files = load_file(folder / "model.safetensors")
    for joined, parts in (("down_proj", ["down_proj"]), ("gate_up_proj", ["gate_proj", "up_proj"])):
        name = f"model.layers.1.mlp.experts.{joined}"
        expected = torch.stack(
            [torch.cat([by_hand(files, f"{name.rpartition('.')[0]}.{n}.{part}.weight") for part in parts])
             for n in range(len(oracle.state_dict()[name]))]
        )  # fmt: skip
        assert torch.equal(weights.tensor(name), expected)
        error = (expected - oracle.state_dict()[name]).abs().max() / expected.abs().max()
        assert 0 < error < 1 / 16  # three bits after the point


def by_hand(files: dict[str, torch.Tensor], key: str) -> torch.Tensor:
    codes = files[key].float()
    scale = files[f"{key}_scale_inv"].repeat_interleave(32, 0).repeat_interleave(32, 1)
    return codes * scale[: codes.shape[0], : codes.shape[1]]
