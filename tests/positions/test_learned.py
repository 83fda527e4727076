"""Which row a token gets, and how many tokens fit, against the modules of transformers."""

from __future__ import annotations

import pytest
import torch

from tinput.positions import learned


def test_opt_and_bart_start_at_row_two():
    from transformers.models.bart.modeling_bart import BartLearnedPositionalEmbedding
    from transformers.models.opt.modeling_opt import OPTLearnedPositionalEmbedding

    positions = torch.arange(5)
    for module, theirs in (
        (m := OPTLearnedPositionalEmbedding(16, 4), m(torch.ones(1, 5, dtype=torch.long))),
        (b := BartLearnedPositionalEmbedding(16, 4), b(torch.zeros(1, 5, dtype=torch.long))),
    ):
        config = {"max_position_embeddings": 16}
        n_rows = module.weight.shape[0]
        rows = learned.rows_for(config, positions, n_rows)
        assert rows.tolist() == [2, 3, 4, 5, 6]
        assert torch.equal(module.weight[rows], theirs.reshape(5, 4))
        effect = learned.predict(config, positions, rows=lambda i, w=module.weight: w[i], n_rows=n_rows)
        assert torch.equal(effect.vectors, theirs.reshape(5, 4))
        assert learned.usable_length(config, n_rows) == 16


def test_roberta_counts_from_its_pad():
    from transformers.models.roberta.modeling_roberta import RobertaEmbeddings

    ids = torch.tensor([0, 5, 1, 2])
    assert learned.positions_past_pads(ids, 1).tolist() == [2, 3, 1, 4]
    generator = torch.Generator().manual_seed(0)
    many = torch.randint(0, 4, (40,), generator=generator)
    theirs = RobertaEmbeddings.create_position_ids_from_input_ids(many[None], 3)[0]
    assert torch.equal(learned.positions_past_pads(many, 3), theirs)


def test_roberta_s_usable_length_and_the_first_token_too_many():
    config, n_rows, pad = {"max_position_embeddings": 10}, 10, 1
    assert learned.usable_length(config, n_rows, first=pad + 1) == 8  # max - pad - 1
    eight = learned.positions_past_pads(torch.full((8,), 5), pad)
    assert learned.rows_for(config, eight, n_rows).tolist() == list(range(2, 10))
    nine = learned.positions_past_pads(torch.full((9,), 5), pad)
    with pytest.raises(ValueError, match="position 10 is past the last one, 9"):
        learned.rows_for(config, nine, n_rows)


def test_a_table_as_long_as_the_context_has_no_offset():
    for config in ({"n_positions": 8}, {"max_position_embeddings": 8}, {}, {"max_position_embeddings": 9}):
        assert learned.rows_for(config, torch.arange(8), 8).tolist() == list(range(8))
        assert learned.usable_length(config, 8) == 8


def test_a_table_in_factors_is_reformers():
    from transformers import ReformerConfig
    from transformers.models.reformer.modeling_reformer import AxialPositionEmbeddings

    config = ReformerConfig(axial_pos_shape=[3, 5], axial_pos_embds_dim=[4, 2], hidden_size=6)
    module = AxialPositionEmbeddings(config).eval()
    factors = [torch.randn_like(weight) for weight in module.weights]
    for weight, value in zip(module.weights, factors, strict=True):
        weight.data = value
    positions = torch.tensor([14, 0, 7, 5])
    mine = learned.predict({}, positions, factors=factors).vectors
    assert torch.equal(mine, module(positions[None])[0])
    assert torch.equal(mine[2], torch.cat((factors[0][1, 0], factors[1][0, 2])))  # 7 is row 1 of 3, column 2 of 5


def test_positions_may_be_rows_already():
    table = torch.arange(12.0).reshape(6, 2)
    config = {"max_position_embeddings": 4}
    taken = learned.predict(config, torch.tensor([2, 5]), variant="rows", rows=lambda i: table[i], n_rows=6)
    assert torch.equal(taken.vectors, table[[2, 5]])
    with pytest.raises(ValueError, match="learned"):
        learned.predict(config, torch.tensor([0]))
    with pytest.raises(ValueError, match="unknown variant"):
        learned.predict(config, torch.tensor([0]), variant="x", rows=lambda i: table[i], n_rows=6)


def test_low_precision_rows_come_out_as_float32():
    table = torch.tensor([[1.0, 2.5]], dtype=torch.bfloat16)
    effect = learned.predict({}, torch.tensor([0]), rows=lambda i: table[i], n_rows=1)
    assert effect.vectors.dtype == torch.float32


def test_notice_holds_this_effect_s_numbers():
    table = torch.tensor([[3.0, 4.0], [6.0, 8.0], [0.0, 1.0]])
    positions = torch.arange(3)
    effect = learned.predict({}, positions, rows=lambda i: table[i], n_rows=3)
    said = " ".join(learned.notice(effect, positions))
    assert "5.33 on average" in said
    assert "position 1, 10" in said
