"""What can be said of a model from its configuration alone, where weights are gated, absent or not to be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tinput import atlas, figures
from tinput.errors import BadModel, TinputError
from tinput.positions import SCHEMES, Add, Bias, Content, Rotate
from tinput.ui import badges, literal, shows, words
from tinput.ui.place import html, panel, sentences

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from tinput.open import Model

__all__ = ["draw_outline", "of_architecture", "sizes"]

LENGTH = 64  # positions that are pictured
HEADS = 8  # at most so many side by side

# What a person looks for first; a configuration may hold a hundred entries more.
_SIZES = {
    "model_type": "architecture",
    "hidden_size": "width",
    "d_model": "width",
    "n_embd": "width",
    "num_hidden_layers": "layers",
    "n_layer": "layers",
    "num_attention_heads": "heads",
    "n_head": "heads",
    "num_key_value_heads": "kv heads",
    "head_dim": "width of a head",
    "vocab_size": "vocabulary",
    "max_position_embeddings": "context",
    "n_positions": "context",
    "rope_theta": "theta",
    "rope_scaling": "scaling",
    "rope_parameters": "rotation",
    "torch_dtype": "dtype",
    "dtype": "dtype",
}


def sizes(config: Mapping[str, Any] | BadModel) -> str:
    """HTML of a configuration's sizes as they stand in it; empty for an error that carries none."""
    found = getattr(config, "config", None) if isinstance(config, BadModel) else config
    if not isinstance(found, Mapping):
        return ""
    rows = [(name, _said(found[key])) for key, name in _SIZES.items() if found.get(key) not in (None, {}, "")]
    return literal.table(("config.json says", ""), rows, [False] * len(rows)) if rows else ""


def of_architecture(error: BadModel) -> str:
    """HTML of what is known of a model that cannot be read: its architecture's schemes, or its configuration's sizes.

    The Hub tells the architecture of a gated model to everybody. Empty for an error that carries no configuration.
    """
    config = getattr(error, "config", None)
    kind = config.get("model_type") if isinstance(config, Mapping) else None
    row = next((row for row in atlas.load()[1] if row["model_type"] == kind), {})
    schemes = [SCHEMES[name] for name in row.get("schemes", ()) if name in SCHEMES]
    if not schemes:
        return sizes(error)
    shown = [badges.scheme(scheme.NAME) for scheme in schemes]
    shown.append(badges.plain("by its architecture alone: nothing is recorded"))
    said = f"Its architecture is {kind}: how models of it tell positions apart stands on the page Architectures."
    return badges.row(*shown) + literal.paragraphs([said])


def _picture(effect: Any, call: str, *, large: bool) -> tuple[Figure | None, str]:
    """(figure, the Python that makes it) of what positions inject, position by position; None where nothing enters.

    call: how the code names the effect
    """
    options: dict[str, Any] = {"row_title": "position"}
    match effect:
        case Add():
            return figures.heatmap(effect.vectors, large=large, **options), (
                f"tinput.figures.heatmap({call}.vectors, row_title='position')"
            )
        case Rotate():
            options |= {"column_title": "pair", "value_title": "angle (rad)", "scale": "cyclic"}
            code = f"tinput.figures.heatmap({call}.angles, {', '.join(f'{k}={v!r}' for k, v in options.items())})"
            return figures.heatmap(effect.angles, large=large, **options), code
        case Bias() | Content() if effect.scores is not None:
            scores = effect.scores[:HEADS]
            names = [f"head {head}" for head in range(len(scores))]
            return figures.panels(scores, names, value_title="bias", large=large), (
                f"tinput.figures.panels({call}.scores[:{HEADS}], {names!r}, value_title='bias')"
            )
    return None, ""


def draw_outline(model: Model) -> None:
    """Pictures of what positions inject, and how near the formula comes, without a weight."""
    length = min(LENGTH, model.usable_length or LENGTH)
    try:
        found = model.outline(length)
    except TinputError as error:
        sentences(str(error))
        return
    at = "" if model.revision is None else f", revision={model.revision!r}"
    made = f"import tinput\n\nmodel = tinput.open_model({model.name!r}{at})\nfound = model.outline({length})"
    source = {"model": model.name, "revision": model.revision or "none", "from": "the configuration alone"}
    for index, item in enumerate(found.effects):
        scheme = SCHEMES.get(item.scheme)
        figure, code = _picture(item.effect, f"found.effects[{index}].effect", large=shows.large())
        with panel(f"{words.label(item.scheme)}, by position") as place:
            if figure is None:
                why = item.reason or "nothing enters from position"
                sentences(f"{why[0].upper()}{why[1:].rstrip('.')}.")
            else:
                shows.draw(figure, f"outline-{index}", made, code, source)
            if scheme is not None and item.effect is not None and found.positions is not None:
                place.say(*scheme.notice(item.effect, found.positions), formula=scheme.FORMULA)
    html(badges.row(badges.agreement(found.agreement, found.textbook_reason)))


def _said(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return str(value)[:200]
    return f"{value:,}"
