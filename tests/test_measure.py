"""measure against numpy written the long way, and against cases whose answer is known."""

import math

import numpy as np
import pytest
import torch

from tinput import measure


@pytest.fixture
def table():
    return torch.randn(40, 12, generator=torch.Generator().manual_seed(3))


def test_cosine_is_the_normalised_dot_product(table):
    x = table.double().numpy()
    want = [[a @ b / (math.sqrt(a @ a) * math.sqrt(b @ b)) for b in x[:5]] for a in x]
    np.testing.assert_allclose(measure.cosine(table, table[:5]), want, atol=1e-6)
    np.testing.assert_array_equal(measure.cosine(table), measure.cosine(table, table))


def test_cosine_of_tiny_huge_and_half_precision_vectors(table):
    want = measure.cosine(table)
    for scale in (1e-30, 1e30):
        torch.testing.assert_close(measure.cosine(table * scale), want, atol=1e-6, rtol=0)
    torch.testing.assert_close(measure.cosine(table.bfloat16()), measure.cosine(table.bfloat16().float()))


def test_a_zero_vector_has_no_direction(table):
    table[3] = 0
    found = measure.cosine(table)
    assert found[3].isnan().all()
    assert found[:, 3].isnan().all()
    assert int(found.isnan().sum()) == 40 + 39


def test_norms(table):
    want = [math.sqrt(sum(v * v for v in row)) for row in table.tolist()]
    np.testing.assert_allclose(measure.norms(table), want, rtol=1e-6)
    assert float(measure.norms(torch.full((1, 4), 1e30))) == pytest.approx(2e30)


@pytest.mark.parametrize("chunk", [1, 7, 40, 1000])
def test_nearest_is_a_sort_of_all_cosines_whatever_the_chunk(table, chunk):
    cosines = measure.cosine(table[5:6], table)[0]
    order = [i for i in np.argsort(-cosines.numpy(), kind="stable").tolist() if i != 5][:6]
    for rows, count in ((table, None), (lambda index: table[index], 40)):
        found = measure.nearest(rows, table[5], 6, without=5, count=count, chunk=chunk)
        assert found.index.tolist() == order
        torch.testing.assert_close(found.cosine, cosines[order], atol=1e-6, rtol=0)
    assert int(measure.nearest(table, table[5], 1, chunk=chunk).index[0]) == 5


def test_nearest_leaves_out_rows_of_zeros_and_asks_for_rows_in_chunks(table):
    table[7] = 0
    asked = []

    def rows(index):
        asked.append(len(index))
        return table[index]

    found = measure.nearest(rows, table[0], 100, count=40, chunk=16)
    assert asked == [16, 16, 8]
    assert sorted(found.index.tolist()) == [i for i in range(40) if i != 7]


def test_by_distance_reads_diagonals():
    matrix = torch.arange(12.0).reshape(3, 4)  # the last query is at the last key: query i is at key i + 1
    found = measure.by_distance(matrix, signed=True)
    cells = {}
    for i in range(3):
        for j in range(4):
            cells.setdefault(j - (i + 1), []).append(float(matrix[i, j]))
    assert found.distance.tolist() == sorted(cells)
    assert found.count.tolist() == [len(cells[d]) for d in sorted(cells)]
    np.testing.assert_allclose(found.mean, [np.mean(cells[d]) for d in sorted(cells)])
    np.testing.assert_allclose(found.low, [np.quantile(cells[d], 0.1) for d in sorted(cells)], rtol=1e-6)
    np.testing.assert_allclose(found.high, [np.quantile(cells[d], 0.9) for d in sorted(cells)], rtol=1e-6)
    apart = measure.by_distance(matrix)
    assert apart.distance.tolist() == [0, 1, 2, 3]
    assert float(apart.mean[1]) == pytest.approx(np.mean(cells[1] + cells[-1]))


def test_by_distance_leaves_out_what_is_masked():
    matrix = torch.ones(5, 5).triu(1).mul(-1).masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf)
    found = measure.by_distance(matrix, signed=True)
    assert found.distance.tolist() == [-4, -3, -2, -1, 0]
    assert found.mean.isfinite().all()
    assert len(measure.by_distance(torch.full((2, 2), math.nan)).distance) == 0


def test_mean_cosine_is_the_similarity_of_vectors_of_sines_and_cosines():
    frequencies = 10000.0 ** (-torch.arange(8, dtype=torch.float64) / 8)
    angles = torch.arange(30, dtype=torch.float64)[:, None] * frequencies
    vectors = torch.cat([angles.sin(), angles.cos()], dim=1)
    want = measure.cosine(vectors)[4, 4:]
    torch.testing.assert_close(measure.mean_cosine(frequencies, torch.arange(26)).float(), want, atol=1e-6, rtol=0)


def test_wavelength_is_the_distance_of_a_full_turn():
    frequencies = torch.tensor([1.0, 0.01, 0.0])
    assert measure.wavelengths(frequencies)[:2].tolist() == pytest.approx([6.283185307, 628.3185307], rel=1e-6)
    assert measure.wavelengths(frequencies)[2] == math.inf


def test_projection_is_the_eigenvectors_of_the_covariance(table):
    x = table.double().numpy()
    values, vectors = np.linalg.eigh(np.cov(x.T))
    found = measure.project(table, 3)
    np.testing.assert_allclose(found.share, values[::-1][:3] / values.sum(), rtol=1e-5)
    for i in range(3):
        direction = vectors[:, -1 - i]
        direction = direction * np.sign(direction[np.abs(direction).argmax()])
        np.testing.assert_allclose(found.directions[i], direction, atol=1e-5)
        np.testing.assert_allclose(found.points[:, i], (x - x.mean(0)) @ direction, atol=1e-5)


@pytest.mark.parametrize("n", [1, 2])
def test_projection_of_a_text_of_one_or_two_tokens(table, n):
    found = measure.project(table[:n], 2)
    assert found.points.shape == (n, 2)
    assert found.share.shape == (2,)
    assert float(found.points[:, 1].abs().max()) == pytest.approx(0, abs=1e-5)
    if n == 2:
        apart = float((table[0] - table[1]).norm())
        assert float((found.points[0] - found.points[1]).norm()) == pytest.approx(apart, rel=1e-5)


def test_singular_values_are_roots_of_eigenvalues(table):
    x = table.double().numpy()
    for centre in (True, False):
        y = x - x.mean(0) if centre else x
        want = np.sqrt(np.linalg.eigvalsh(y.T @ y))[::-1]
        np.testing.assert_allclose(measure.singular_values(table, centre=centre), want, rtol=1e-5)


def test_rank_for_counts_directions_until_the_share_is_held():
    assert measure.rank_for(torch.tensor([3.0, 1.0, 0.0])) == 1  # 9 of 10 is 90 %
    assert measure.rank_for(torch.tensor([3.0, 1.0, 0.0]), 0.95) == 2
    assert measure.rank_for(torch.ones(10)) == 9
    assert measure.rank_for(torch.zeros(4)) == 0


@pytest.mark.parametrize("n", [64, 65])
def test_periods_finds_the_waves_that_were_put_in(n):
    position = torch.arange(n, dtype=torch.float64)
    table = torch.stack([3 * (2 * math.pi * position * 4 / n).sin() + 7, (2 * math.pi * position * 10 / n).cos()], 1)
    found = measure.periods(table)
    assert found.strongest(2)[0] == pytest.approx((n / 4, 0.9))
    assert found.strongest(2)[1] == pytest.approx((n / 10, 0.1))
    assert float(found.share.sum()) == pytest.approx(1)


def test_periods_share_is_the_share_of_the_variance(table):
    x = table.double().numpy() - table.double().numpy().mean(0)
    n, want = len(x), []
    for f in range(1, n // 2 + 1):  # least squares on a sine and a cosine, one frequency at a time
        angle = 2 * np.pi * f * np.arange(n) / n
        basis = np.stack([np.cos(angle), np.sin(angle)], 1)[:, : 1 if 2 * f == n else 2]
        fit = basis @ np.linalg.lstsq(basis, x, rcond=None)[0]
        want.append((fit**2).sum() / (x**2).sum())
    np.testing.assert_allclose(measure.periods(table).share, want, rtol=1e-6)
    np.testing.assert_allclose(measure.periods(table).period, n / np.arange(1, n // 2 + 1))


def test_probe_is_ridge_regression_on_held_out_positions(table):
    found = measure.probe(table)
    x, y = table.double().numpy(), np.arange(40.0)
    held = np.arange(40) % 4 == 2
    mean_x, mean_y = x[~held].mean(0), y[~held].mean()
    centred = x[~held] - mean_x
    weight = np.linalg.solve(centred.T @ centred + found.ridge * np.eye(12), centred.T @ (y[~held] - mean_y))
    read = (x[held] - mean_x) @ weight + mean_y
    np.testing.assert_allclose(found.read, read, rtol=1e-7)
    assert found.positions.tolist() == y[held].tolist()
    assert found.error == pytest.approx(np.abs(read - y[held]).mean())
    assert found.r2 == pytest.approx(1 - ((read - y[held]) ** 2).sum() / ((y[held] - y[held].mean()) ** 2).sum())


@pytest.mark.parametrize(("n", "width", "seed"), [(40, 12, 3), (8, 2, 1), (9, 3, 3), (16, 12, 0)])
def test_probe_chooses_the_penalty_by_leaving_one_out(n, width, seed):
    """The long way: fit anew without each position. Of a short table, the mean that is fitted too tips the scale."""
    table = torch.randn(n, width, generator=torch.Generator().manual_seed(seed))
    table[:, 0] += 0.3 * torch.arange(n)
    found = measure.probe(table)
    x, y = table.double().numpy(), np.arange(float(n))
    kept = np.arange(n) % 4 != 2
    x, y = x[kept], y[kept]
    top = np.linalg.svd(x - x.mean(0), compute_uv=False)[0] ** 2

    def error(ridge):
        total = 0.0
        mean = x.mean(0)
        for i in range(len(x)):
            rest = np.arange(len(x)) != i
            a = np.c_[np.ones(rest.sum()), x[rest] - mean]
            penalty = np.diag([0.0] + [ridge] * x.shape[1])
            beta = np.linalg.solve(a.T @ a + penalty, a.T @ y[rest])
            total += (np.r_[1.0, x[i] - mean] @ beta - y[i]) ** 2
        return total

    ridges = [top * 10.0**e for e in range(-9, 4)]
    assert found.ridge == pytest.approx(min(ridges, key=error))


def test_probe_reads_a_table_that_holds_the_position_and_not_one_of_noise(table):
    position = torch.arange(40.0)
    told = table.clone()
    told[:, 0] = 0.1 * position + 3
    assert measure.probe(told).r2 > 0.999
    assert measure.probe(table).r2 < 0.5
    assert measure.probe(torch.ones(40, 3)).r2 < 0.01  # no variance at all: reads the mean
    with pytest.raises(ValueError, match="at least 8"):
        measure.probe(table[:7])


def test_shares_add_up_to_one(table):
    token, position = table[:20], table[20:]
    found = measure.shares(token, position)
    torch.testing.assert_close(found.token + found.position + found.cross, torch.ones(20), atol=1e-4, rtol=0)
    t, p = token.double().numpy(), position.double().numpy()
    whole = ((t + p) ** 2).sum(1)
    np.testing.assert_allclose(found.token, (t * t).sum(1) / whole, rtol=1e-5)
    np.testing.assert_allclose(found.cross, (2 * t * p).sum(1) / whole, rtol=1e-4, atol=1e-5)


def test_shares_of_right_angles_equal_and_opposite_vectors():
    token = torch.tensor([[3.0, 0.0], [1.0, 1.0], [2.0, 0.0]])
    position = torch.tensor([[0.0, 4.0], [1.0, 1.0], [-1.0, 0.0]])
    found = measure.shares(token, position)
    assert found.token.tolist() == pytest.approx([9 / 25, 0.25, 4.0])
    assert found.position.tolist() == pytest.approx([16 / 25, 0.25, 1.0])
    assert found.cross.tolist() == pytest.approx([0.0, 0.5, -4.0])


def test_correlation_against_numpy_and_without_masked_cells(table):
    a, b = table[:, :6].clone(), table[:, 6:] + table[:, :6]
    assert measure.correlation(a, b) == pytest.approx(np.corrcoef(a.flatten(), b.flatten())[0, 1], rel=1e-5)
    a[0, 0] = -math.inf
    want = np.corrcoef(a.flatten()[1:], b.flatten()[1:])[0, 1]
    assert measure.correlation(a, b) == pytest.approx(want, rel=1e-5)
    assert math.isnan(measure.correlation(torch.ones(4), torch.arange(4.0)))


def test_attention_weights_against_numpy_and_torch(table):
    q, k = table[:8, :6], table[8:18, :6]
    bias = table[:8, :10] * 2
    scores = q @ k.T
    found = measure.attention_weights(scores, bias, causal=True)
    x = (scores + bias).double().numpy()
    x[np.arange(10)[None] > np.arange(8)[:, None] + 2] = -np.inf
    want = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(found, want / want.sum(1, keepdims=True), atol=1e-6)
    same = measure.attention_weights(scores, mask=torch.from_numpy(np.where(np.isinf(x), -np.inf, 0.0)))
    torch.testing.assert_close(same, measure.attention_weights(scores, causal=True))


def test_mean_distance_by_hand():
    weights = torch.tensor([[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 1.0, 0], [0.25, 0, 0, 0.75]])
    assert float(measure.mean_distance(weights)) == pytest.approx((0 + 0.5 + 0 + 0.75) / 4)
    assert float(measure.mean_distance(torch.tensor([[0.0, 0, 1, 0]]))) == 1  # a lone query stands at the last key


def test_fall_is_the_first_distance_below_one_percent():
    distance = torch.arange(2000.0)
    slopes = torch.tensor([0.5, 0.25, 0.00390625, 0.0])
    found = measure.fall(-slopes[:, None] * distance + 3)
    want = []
    for slope in slopes.tolist():
        below = [d for d in range(2000) if math.exp(-slope * d) < 0.01]
        want.append(below[0] if below else math.inf)
    assert found.tolist() == want
    assert found.tolist()[:3] == [10, 19, 1179]
    assert measure.fall(torch.tensor([[0.0, -0.5, -0.8]]), 0.5).tolist() == [2]
