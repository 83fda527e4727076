"""What can be said in numbers about vectors, matrices and tables: similarity, distance, spectrum, a linear reading.

Pure torch, on tensors of any float dtype; computed in float32 or, where sums are long, float64. Nothing here knows
a scheme or a model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = [
    "Distances",
    "Nearest",
    "Periods",
    "Probe",
    "Projection",
    "Shares",
    "attention_weights",
    "by_distance",
    "correlation",
    "cosine",
    "fall",
    "mean_cosine",
    "mean_distance",
    "nearest",
    "norms",
    "periods",
    "probe",
    "project",
    "rank_for",
    "shares",
    "singular_values",
    "turns",
    "wavelengths",
]


def norms(x: Tensor) -> Tensor:
    """The length of each vector: (..., width) -> (...), float32."""
    return torch.linalg.vector_norm(x.double(), dim=-1).float()


def cosine(a: Tensor, b: Tensor | None = None) -> Tensor:
    """The cosine of the angle between each row of `a` and each of `b` (of `a` itself if None): (n, m), float32.

    NaN where a row is all zero: such a vector has no direction.
    """
    left = _directions(a)
    return (left @ (left if b is None else _directions(b)).T).clamp(-1, 1)


def _directions(x: Tensor) -> Tensor:
    x = x.float()
    x = x / x.abs().amax(dim=-1, keepdim=True)  # so that squares neither overflow nor vanish
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)


@dataclass(frozen=True, eq=False)
class Nearest:
    """index: (k,) int64, rows of the table, most alike first; cosine: (k,) float32"""

    index: Tensor
    cosine: Tensor


def nearest(
    rows: Tensor | Callable[[Tensor], Tensor],
    vector: Tensor,
    k: int = 10,
    *,
    count: int | None = None,
    without: int | None = None,
    chunk: int = 8192,
) -> Nearest:
    """The `k` rows of a table whose direction is closest to the vector's, by cosine.

    rows: (vocab, width), or a function of row numbers (n,) int64 -> (n, width), then with `count` rows; `chunk` of them
        are held at a time
    without: a row that is left out, such as the token itself. Rows of zeros are left out too.
    """
    if isinstance(rows, Tensor):
        table, count = rows, len(rows)
        rows = lambda index: table[int(index[0]) : int(index[-1]) + 1]  # noqa: E731 - whole chunks: no copy
    if count is None:
        raise ValueError("nearest wants `count`, the number of rows, when rows is a function")
    best_cosine, best_index = torch.empty(0), torch.empty(0, dtype=torch.int64)
    for start in range(0, count, chunk):
        index = torch.arange(start, min(start + chunk, count))
        found = cosine(vector[None], rows(index))[0].nan_to_num(-math.inf)
        if without is not None and start <= without < start + len(index):
            found[without - start] = -math.inf
        best_cosine, best_index = torch.cat([best_cosine, found]), torch.cat([best_index, index])
        best_cosine, order = best_cosine.topk(min(k, len(best_cosine)))
        best_index = best_index[order]
    kept = best_cosine > -math.inf
    return Nearest(best_index[kept], best_cosine[kept])


@dataclass(frozen=True, eq=False)
class Distances:
    """A matrix read along its diagonals.

    distance: (n,) int64; mean, low, high: (n,) float32, over the cells at that distance: their mean, and the values
    between which the middle 80 % of them lie; count: (n,) int64, how many finite cells there are
    """

    distance: Tensor
    mean: Tensor
    low: Tensor
    high: Tensor
    count: Tensor


def by_distance(matrix: Tensor, *, signed: bool = False) -> Distances:
    """The cells of (query, key) by how far key is from query; cells that are not finite (masked) are left out.

    signed: distance is key minus query, past negative; else |query - key|. The last query stands at the last key.
    A distance without a finite cell is left out.
    """
    rows, columns = matrix.shape
    # Each row moved one further to the right than the row below: distances then stand one below the other.
    cells = torch.nn.functional.pad(matrix.float().flip(0), (0, rows), value=math.nan)
    cells = cells.flatten()[: rows * (rows + columns - 1)].view(rows, rows + columns - 1)
    cells = torch.where(cells.isfinite(), cells, math.nan).T  # (distance, rows), the query itself at columns - 1
    distance = torch.arange(1 - columns, rows)
    if not signed:
        behind, ahead = cells[:columns].flip(0), cells[columns:]
        most = max(len(behind), len(ahead) + 1)
        behind = torch.nn.functional.pad(behind, (0, 0, 0, most - len(behind)), value=math.nan)
        ahead = torch.nn.functional.pad(ahead, (0, 0, 1, most - len(ahead) - 1), value=math.nan)
        cells, distance = torch.cat((behind, ahead), dim=1), torch.arange(most)
    count = (~cells.isnan()).sum(dim=1)
    kept = count > 0
    cells, distance, count = cells[kept].sort(dim=1).values, distance[kept], count[kept]  # NaN last
    mean = cells.double().nansum(dim=1) / count
    return Distances(distance, mean.float(), _quantile(cells, count, 0.1), _quantile(cells, count, 0.9), count)


def _quantile(cells: Tensor, count: Tensor, share: float) -> Tensor:
    """Of the first `count` of each sorted row, between neighbours where it falls between them: (n,)."""
    place = share * (count - 1).double()
    below = place.floor().long()
    low, high = cells.gather(1, below[:, None])[:, 0], cells.gather(1, (below + 1).clamp(max=count - 1)[:, None])[:, 0]
    return (low + (place - below) * (high - low)).float()


def wavelengths(frequencies: Tensor) -> Tensor:
    """Tokens for a full turn: 2 pi / frequency (radians a token), (pair,) float64; inf for frequency 0."""
    return 2 * math.pi / frequencies.double()


def turns(angles: Tensor) -> Tensor:
    """Angles in radians as full turns, of the same shape, float64."""
    return angles.double() / (2 * math.pi)


def mean_cosine(frequencies: Tensor, distance: Tensor) -> Tensor:
    """The mean over pairs of cos(distance * frequency): (distance,) float64.

    It is the cosine similarity of two sinusoidal vectors that far apart, and the score of equal, even q and k that
    are rotated that far apart, over its value at distance 0 (Su et al. 2021, section 3.4.3).
    """
    return (distance.double()[:, None] * frequencies.double()).cos().mean(dim=1)


@dataclass(frozen=True, eq=False)
class Projection:
    """points: (n, k) float32; share: (k,) of the variance that each direction holds; directions: (k, width)"""

    points: Tensor
    share: Tensor
    directions: Tensor


def project(x: Tensor, k: int = 2) -> Projection:
    """Principal components of the rows of (n, width): the plane (or line, space) that holds most of their variance.

    A direction's sign is open; here its largest entry is positive. Fewer rows than k + 1 leave points at 0.
    """
    centred = x.double() - x.double().mean(dim=0)
    u, s, v = torch.linalg.svd(centred, full_matrices=False)
    sign = v.gather(1, v.abs().argmax(dim=1, keepdim=True)).sign()  # (min, 1)
    sign[sign == 0] = 1
    points, directions = (u * s) * sign.T, v * sign
    total = s.square().sum()
    share = s.square() / total if total > 0 else torch.zeros_like(s)
    pad = max(0, k - len(s))
    points = torch.nn.functional.pad(points[:, :k], (0, pad))
    share = torch.nn.functional.pad(share[:k], (0, pad))
    directions = torch.nn.functional.pad(directions[:k], (0, 0, 0, pad))
    return Projection(points.float(), share.float(), directions.float())


def singular_values(table: Tensor, *, centre: bool = True) -> Tensor:
    """How many directions a table needs: its singular values, (min(n, width),) float32, falling.

    centre: take away the mean row first
    """
    table = table.double()
    return torch.linalg.svdvals(table - table.mean(dim=0) if centre else table).float()


def rank_for(singular_values: Tensor, share: float = 0.9) -> int:
    """How many directions hold that share of the variance, given a table's singular values; 0 if it has none."""
    power = singular_values.double().square()
    if not float(power.sum()) > 0:
        return 0
    held = power.cumsum(0) / power.sum()
    return int((held < share - 1e-12).sum()) + 1


@dataclass(frozen=True, eq=False)
class Periods:
    """period: (f,) float64, tokens for a full wave, falling; share: (f,) float64, of the table's power (mean apart)"""

    period: Tensor
    share: Tensor

    def strongest(self, k: int = 3) -> list[tuple[float, float]]:
        """The k periods that hold most, with their shares."""
        order = self.share.argsort(descending=True)[:k]
        return [(float(self.period[i]), float(self.share[i])) for i in order]


def periods(table: Tensor) -> Periods:
    """The waves in a table of positions: its Fourier transform along the positions, power summed over dimensions.

    table: (n, width), a row a position; its mean is taken away. The longest period is n tokens, the shortest 2.
    """
    n = len(table)
    if n < 2:
        raise ValueError(f"a wave needs at least 2 positions, not {n}")
    centred = table.double() - table.double().mean(dim=0)
    power = torch.fft.rfft(centred, dim=0).abs().square().sum(dim=1)
    if n % 2 == 0:
        power[-1] /= 2  # all other frequencies stand for two, plus and minus
    power, total = power[1:], power[1:].sum()
    wave = torch.arange(1, len(power) + 1, dtype=torch.float64)
    return Periods(n / wave, power / total if total > 0 else torch.zeros_like(power))


@dataclass(frozen=True, eq=False)
class Probe:
    """How well a linear map reads the position off a vector.

    r2: on the held-out positions: 1 is perfect, 0 no better than their mean; error: mean |read - true| there, in tokens
    positions, read: (held,) the held-out positions, and what the probe reads
    ridge: the penalty chosen
    """

    r2: float
    error: float
    positions: Tensor
    read: Tensor
    ridge: float


def probe(table: Tensor, positions: Tensor | None = None, *, every: int = 4) -> Probe:
    """Ridge regression from vectors to positions, fitted without every 4th position and tested on those.

    table: (n, width), n >= 8; positions: (n,), 0, 1, ... if None. The penalty is the one whose leave-one-out error
    on the fitted positions is smallest, of 13 from 1e-9 to 1e3 times the largest squared singular value.
    """
    n = len(table)
    if n < 2 * every:
        raise ValueError(f"a probe that holds out 1 position in {every} needs at least {2 * every}, not {n}")
    y = torch.arange(n, dtype=torch.float64) if positions is None else positions.double()
    x = table.double()
    held = torch.arange(n) % every == every // 2
    x_fit, y_fit = x[~held], y[~held]
    x_mean, y_mean = x_fit.mean(dim=0), y_fit.mean()
    u, s, v = torch.linalg.svd(x_fit - x_mean, full_matrices=False)
    projected = u.T @ (y_fit - y_mean)
    best: tuple[float, float, Tensor] | None = None
    for exponent in range(-9, 4):
        ridge = float(s[0].square()) * 10.0**exponent
        if ridge == 0:
            continue
        keep = s.square() / (s.square() + ridge)
        hat = (u.square() * keep).sum(dim=1) + 1 / len(y_fit)  # the mean is fitted too
        residual = (y_fit - y_mean) - u @ (keep * projected)
        left_out = float((residual / (1 - hat).clamp(min=1e-12)).square().mean())
        if best is None or left_out < best[0]:
            best = left_out, ridge, v.T @ (keep / s.clamp(min=1e-300) * projected)
    weight = torch.zeros(x.shape[1], dtype=torch.float64) if best is None else best[2]
    read = (x[held] - x_mean) @ weight + y_mean
    true = y[held]
    r2 = 1 - float((read - true).square().sum() / (true - true.mean()).square().sum())
    return Probe(r2, float((read - true).abs().mean()), true, read, 0.0 if best is None else best[1])


@dataclass(frozen=True, eq=False)
class Shares:
    """||token + position||^2 = ||token||^2 + ||position||^2 + 2 token . position, each over the whole: (seq,) float32.

    The three add up to 1; `cross` is negative where the two point apart.
    """

    token: Tensor
    position: Tensor
    cross: Tensor


def shares(token: Tensor, position: Tensor) -> Shares:
    """How much of the sum of two vectors each of them is: (seq, width) and (seq, width); NaN where the sum is zero."""
    t, p = token.double(), position.double()
    whole = (t + p).square().sum(dim=-1)
    parts = (t.square().sum(dim=-1), p.square().sum(dim=-1), 2 * (t * p).sum(dim=-1))
    return Shares(*((part / whole).float() for part in parts))


def correlation(a: Tensor, b: Tensor) -> float:
    """Pearson's correlation of two arrays of one shape, over the cells where both are finite; NaN if constant."""
    x, y = a.double().flatten(), b.double().flatten()
    both = x.isfinite() & y.isfinite()
    x, y = x[both] - x[both].mean(), y[both] - y[both].mean()
    return float((x @ y) / (x.norm() * y.norm()))


def attention_weights(
    scores: Tensor, bias: Tensor | None = None, *, causal: bool = False, mask: Tensor | None = None
) -> Tensor:
    """softmax(scores + bias + mask) over the keys: (..., query, key), float32.

    causal: later keys get nothing; the last query stands at the last key
    """
    scores = scores.float()
    if bias is not None:
        scores = scores + bias.float()
    if mask is not None:
        scores = scores + mask.float()
    if causal:
        n_query, n_key = scores.shape[-2:]
        later = torch.ones(n_query, n_key, dtype=torch.bool).triu(1 + n_key - n_query)
        scores = scores.masked_fill(later, -math.inf)
    return scores.softmax(dim=-1)


def mean_distance(weights: Tensor) -> Tensor:
    """How many tokens away attention looks: sum over keys of weight * |query - key|, mean over queries, (...) float32.

    weights: (..., query, key), rows that sum to 1; the last query is at the last key
    """
    n_query, n_key = weights.shape[-2:]
    query = torch.arange(n_query)[:, None] + n_key - n_query
    apart = (query - torch.arange(n_key)[None, :]).abs()
    return (weights.double() * apart).sum(dim=-1).mean(dim=-1).float()


def fall(bias: Tensor, fraction: float = 0.01) -> Tensor:
    """The first distance where exp(bias) is below `fraction` of its value at distance 0: (...) float32, inf if never.

    bias: (..., distance), by distance 0, 1, 2, ...: what is added to the score of a token that far away
    """
    below = (bias - bias[..., :1]).double() < math.log(fraction)
    first = below.int().argmax(dim=-1).float()
    return torch.where(below.any(dim=-1), first, torch.full_like(first, math.inf))
