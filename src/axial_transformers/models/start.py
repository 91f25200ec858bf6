"""A start from trained weights, for another shape or other classes."""

from collections.abc import Sequence
from dataclasses import asdict
from textwrap import shorten

import torch
from torch import Tensor

from axial_transformers.data.examples import MAX_LISTED
from axial_transformers.models.axial_transformer import AxialTransformer

MAY_DIFFER = {"shape", "num_classes", "needs_label", "dropout"}
POSITIONS, LABELS = "position.tables.", "labels."


@torch.no_grad()
def start_from(
    model: AxialTransformer,
    trained: AxialTransformer,
    name: str,
    classes: Sequence[str] | None = None,
    classes_before: Sequence[str] | None = None,
) -> list[str]:
    """Copy the weights of a trained model, and return a line for each table that could not be copied.

    Positions are cut or interpolated. Classes are found by their names, or else by their numbers if there are as many.
    Other classes start anew, at zero if there were none.

    Args:
        name: what messages call the trained model.
        classes, classes_before: names of the classes of the model and of the trained one, if they are known.

    Raises:
        ValueError: the models differ in more, or in the shape of a model that flattens its axes.
    """
    configs = model.config, trained.config
    mine, others = (asdict(each) | {"outer_layers": each.layers_of_outer_decoders} for each in configs)
    for field in mine.keys() - MAY_DIFFER:
        if mine[field] != others.get(field):
            same = "both models must have the same"
            theirs, own = (shorten(str(each.get(field)), MAX_LISTED) for each in (others, mine))
            raise ValueError(f"{name} has model.{field}={theirs}, not {own}: {same}")
    weights = model.state_dict()
    learned = dict(model.named_parameters())
    changed = []
    for key, old in trained.state_dict().items():
        if key.startswith(LABELS):
            continue
        new = weights.get(key)
        if new is None or (new.shape != old.shape and key in learned and not key.startswith(POSITIONS)):
            raise ValueError(f"{name} cannot be used for shape {model.config.shape}: its {key} depends on the shape")
        if new.shape == old.shape:
            new.copy_(old)
        elif key.startswith(POSITIONS):
            axis = int(key.removeprefix(POSITIONS))
            new.copy_(_resized(old, model, trained, axis, name))
            how = "cut" if len(new) < len(old) else "interpolated"
            changed.append(f"positions along axis {axis + 1} are {how}: {len(old)} to {len(new)}")
    return changed + _start_classes(model, trained, classes, classes_before)


def _start_classes(
    model: AxialTransformer,
    trained: AxialTransformer,
    names: Sequence[str] | None,
    names_before: Sequence[str] | None,
) -> list[str]:
    """Copy the embeddings of classes, and return a line if some could not be copied."""
    before = trained.config.num_classes
    now = model.config.num_classes
    anew = f"classes start anew: {before or 'none'} before, {now or 'none'} now"
    if not model.labels or not trained.labels:
        if model.labels:
            model.labels.embed.table.zero_()
        return [] if before == now else [anew]
    table = model.labels.embed.table
    old = trained.labels.embed.table
    if not (names and names_before):
        if before != now:
            return [anew]
        table.copy_(old)
        return []
    rows = {name: row for row, name in enumerate(trained.config.names_of_classes(names_before))}
    table[-1], others = old[-1], list[str]()  # the last one is of examples without a label
    for row, name in enumerate(model.config.names_of_classes(names)):
        if name in rows:
            table[row] = old[rows[name]]
        else:
            others.append(name)
    return [f"classes start anew: {shorten(', '.join(others), MAX_LISTED)}"] if others else []


def _resized(old: Tensor, model: AxialTransformer, trained: AxialTransformer, axis: int, name: str) -> Tensor:
    lengths = model.layout.shape[axis], trained.layout.shape[axis]
    channels = trained.layout.shape[axis] // trained.config.shape[axis] if axis < len(trained.config.shape) else 0
    if len(model.layout.shape) < len(model.config.shape) or not channels:
        shape = trained.config.shape
        layout = trained.config.layout
        raise ValueError(f"{name} has the layout {layout}, which needs model.shape={shape}")
    length, before = (each // channels for each in lengths)
    channel_major = trained.config.layout == "rows"
    table = old.view(channels, before, -1) if channel_major else old.view(before, channels, -1).transpose(0, 1)
    if length > before:
        table = torch.nn.functional.interpolate(table.mT, length, mode="linear", align_corners=True).mT
    table = table[:, :length]
    return (table if channel_major else table.transpose(0, 1)).reshape(length * channels, -1)
