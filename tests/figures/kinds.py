"""One figure of each kind, with labels that are anything but harmless."""

import numpy as np

from tinput import figures

NASTY = ("<s>", "<b>x</b>", "&amp;", "the", "$a$", "%{x}", "#000001", "the", "<script>", "你好", "\n", "🦙")


def make(kind: str, **more):
    rng = np.random.default_rng(0)
    labels = list(NASTY)
    scores = np.where(np.tri(12) > 0, rng.normal(size=(12, 12)), -np.inf).astype(np.float32)
    return {
        "heatmap": lambda: figures.heatmap(rng.normal(size=(12, 40)), labels, **more),
        "masked": lambda: figures.heatmap(scores, labels, labels, row_title="query", column_title="key", **more),
        "similarity": lambda: figures.similarity(np.eye(12), labels, **more),
        "weights": lambda: figures.weights(np.full((12, 12), 0.1), labels, causal=True, **more),
        "panels": lambda: figures.panels(np.stack([scores] * 5), [f"<{i}>" for i in range(5)], labels, labels, **more),
        "lines": lambda: figures.lines({"<a>": rng.random(9), "b": rng.random(9)}, marks=[(3, "<mark>")], **more),
        "log lines": lambda: figures.lines({"<a>": [1.0, 1e5]}, log_y=True, levels=[(100, "<level>")], **more),
        "bars": lambda: figures.bars(rng.random(12), labels, **more),
        "stacked": lambda: figures.stacked({"<a>": rng.random(12), "b": -rng.random(12)}, labels, **more),
        "scatter": lambda: figures.scatter(rng.normal(size=(12, 2)), labels, **more),
        "helix": lambda: figures.scatter(rng.normal(size=(50, 2)), values=np.arange(50), path=True, **more),
        "dials": lambda: figures.dials(rng.random((12, 4)), labels, **more),
        "states": lambda: figures.states(
            rng.integers(-1, 2, (5, 9)),
            np.arange(9),
            {0: ("<a>", "#0072B2"), 1: ("new", "#E69F00")},
            row_title="pair",
            column_title="distance",
            mark=(4, "<mark>"),
            **more,
        ),
        "before after": lambda: figures.before_after(scores, scores * 2, scores, labels, labels, **more),
        "linked": lambda: figures.linked(
            [scores, rng.normal(size=(12, 12))], ["<a>", "b"], figures.Ruler(labels), figures.Ruler(labels), **more
        ),
        "path": lambda: figures.path(("<a>", "b"), 2, "#CC79A7", inside=("q", "<k>"), label="<here>", **more),
    }[kind]()


KINDS = ("heatmap", "masked", "similarity", "weights", "panels", "lines", "log lines", "bars", "stacked", "scatter",
         "helix", "dials", "states", "path", "before after", "linked")  # fmt: skip
