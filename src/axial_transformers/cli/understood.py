"""Summary of the data as axial train understands it and of the run to expect, for train.json and the screen."""

import shlex
from datetime import timedelta

from axial_transformers.cli.machine import expected_seconds, room
from axial_transformers.cli.settings import Preset
from axial_transformers.costs.operations import parameters
from axial_transformers.costs.training_step import needed_memory
from axial_transformers.data import Examples
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.pictures import can_be_shown
from axial_transformers.processor import multiplies_bfloat16
from axial_transformers.training import TrainConfig, Understanding
from axial_transformers.training.understanding import axis_names, channel_names, classes, each, splits

_VALUES = {
    "none": "as they are (--model.prediction none)",
    "neighbours": "as differences from neighbours (--model.prediction neighbours)",
    "neighbours_and_channels": "as differences from neighbours and channels (--model.prediction ..)",
}


def understanding(preset: Preset, examples: Examples, validation: int, test: int | None) -> Understanding:
    """The data by names and numbers, and the costs to expect on this machine."""
    settings, place = preset.settings, room(preset.settings.training)
    divides = place is not None and settings.training.batch_size % (place.devices * settings.training.accumulate) == 0
    needed = None
    if place is not None and divides:
        needed = needed_memory(settings.model, settings.training, place.devices, place.device)
    return Understanding(
        train=len(examples),
        validation=validation,
        test=test,
        axes=axis_names(len(examples.shape), settings.data.axes),
        channels=channel_names(examples.channels, examples.uint16),
        parameters=sum(parameters(settings.model).values()),
        memory_bytes=needed,
        seconds=expected_seconds(preset),
    )


def lines(found: Understanding, preset: Preset, examples: Examples) -> list[str]:
    """The same as lines of text, of at most 80 columns but for long names."""
    settings = preset.settings
    model, training, place = settings.model, settings.training, room(settings.training)
    rows = {
        "examples": splits(found, settings.validate_on),
        "each": each(found, examples.shape, examples.num_values),
        "classes": classes(examples.class_names),
        "model": f"{found.parameters:,} parameters, width {model.dim}, layout {model.layout}",
        "values": _VALUES[model.prediction],
        "completion": _completion(model),
        "pictures": "" if can_be_shown(len(model.shape)) else "none: samples of one to three axes are drawn",
        "batches": _batches(training),
        "precision": _precision(training),
        "memory": "not estimated",
        "time": time(found, training),
        "to change": "--data.size, --data.fit, --model.dim, --training.steps, ...:",
        "": f"axial train {shlex.quote(str(preset.source))} --help",
    }
    if found.memory_bytes is not None and place is not None:
        rows["memory"] = f"about {found.memory_bytes / 1e9:.2g} GB; {place.memory / 1e9:.3g} GB are free for it"
    return [
        f"{preset.source}, as it was understood:",
        *(f"  {name:<10}  {text}" for name, text in rows.items() if text),
    ]


def _completion(model: AxialTransformerConfig) -> str:
    """The options of axial complete, exact where the sites that they say are known come first in generation order."""
    axes = {"--rows": max(0, len(model.shape) - 2), "--channels": len(model.shape), "--frames": 0}
    if len(model.shape) < 3:
        del axes["--frames"]
    if model.channels == 1:
        del axes["--channels"]
    order = model.bijection.order
    exact = [name for name, axis in axes.items() if not ((order[1:, axis] == 0) & (order[:-1, axis] > 0)).any()]
    others = [name for name in axes if name not in exact]
    if not others:
        return f"exact with {' and '.join(exact)}"
    return f"exact with {' and '.join(exact)}; with {' and '.join(others)}, add --approximate"


def time(found: Understanding, training: TrainConfig) -> str:
    """The time that training is expected to take."""
    assert found.seconds is not None
    limit = training.time_limit
    ends = "" if limit is None else f"; ends after {timedelta(minutes=limit)} in any case"
    return f"about {about(found.seconds)} for {training.steps:,} steps, evaluations not counted{ends}"


def about(seconds: float) -> str:
    """A rough duration: two units at most."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def _batches(training: TrainConfig) -> str:
    parts = f" in {training.accumulate} parts" if training.accumulate > 1 else ""
    again = ", blocks computed again" if training.checkpoint_blocks else ""
    return f"of {training.batch_size}{parts}{again}"


def _precision(training: TrainConfig) -> str:
    """The arithmetic of the steps, and the reason for it."""
    half = training.precision == "bfloat16"
    if multiplies_bfloat16(training.torch_device()):
        reason = "which this processor multiplies natively" if half else "though bfloat16 is faster here"
    else:
        reason = "though float32 is faster here" if half else "as this processor has no fast bfloat16"
    return f"{training.precision}, {reason}"
