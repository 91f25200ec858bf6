"""The work of `axial train`: data, plan, model, and the callbacks of the run."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from axial_transformers.cli.console import rank_zero_output, say
from axial_transformers.cli.parsing import command
from axial_transformers.cli.settings import Preset
from axial_transformers.data import EmptySplitError, Examples, load
from axial_transformers.decoding.sampling import sample
from axial_transformers.likelihood.bits import bits_map
from axial_transformers.likelihood.evaluation import Fill, evaluate
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.models.baselines.by_name import build
from axial_transformers.pictures import can_be_shown, image_grid
from axial_transformers.pictures.heat_maps import under_examples
from axial_transformers.pictures.saving import save_picture
from axial_transformers.planning.machine import this_machine
from axial_transformers.planning.plan import CHANGEABLE, Plan, describe, plan
from axial_transformers.progress import Bar, bar, rank
from axial_transformers.training import Collective, Origin, Summary, TrainConfig, TrainResult, read_run, train
from axial_transformers.training.run_description import describe_data
from axial_transformers.training.run_page import BITS
from axial_transformers.training.trained_model import check_recorded, check_shape

SHOWN = 8
"""Most validation images whose bits are drawn."""


def run(preset: Preset, command: Sequence[str]) -> TrainResult:
    """Train the preset's model; the run records the words of `command`."""
    with rank_zero_output():
        examples, validation, tests = _read(preset)
        wanted = _plan(preset, examples)
        found = wanted if wanted.fits else wanted.fitted(_changeable(preset), _possible(preset))
        planned = describe(found)
    settings = replace(preset.settings, model=found.model, training=found.training)
    torch.manual_seed(settings.training.seed)
    # a model that is sharded may be larger than a device
    with torch.device("cpu" if settings.training.shard else settings.training.torch_device()):
        model = build(settings.model)
    before = preset.resumed.about if preset.resumed else None
    summary = (before and before.summary) or _summary(found, len(validation), tests)
    origin = _origin(preset, examples, summary, before.command if before else tuple(command))
    if rank() == 0 and before is None:
        if not wanted.fits:
            say(f"{wanted.shortage}: set {found.options(wanted)}")
        rows = settings.model.describe() | describe_data(origin, settings.model) | planned
        for line in _lines(preset.source, rows, len(settings.model.shape)):
            say(line)
    validation = validation[: settings.validate_on]
    return train(
        model,
        examples,
        settings.training,
        settings.out,
        evaluate=evaluation_of(validation, settings.model, settings.training),
        sample=pictures_of(validation, settings.model, settings.training, settings.out, settings.samples),
        resume=settings.resume,
        start_from=settings.start_from,
        about=origin,
        progress=Bar("training"),
    )


def _read(preset: Preset) -> tuple[Examples, Examples, int | None]:
    source, data = preset.source, preset.settings.data
    if not source:
        raise ValueError(f"recipe {preset.name} has no data of its own: axial train {preset.name} FOLDER_OR_FILE")
    if preset.recorded:
        check_recorded(preset.settings.out, source)
    examples = preset.examples or load(source, data, "train", bar("reading"))
    to_follow = f"let the model follow the data: {command('train', source)}"
    check_shape(examples, preset.settings.model, source, preset.name, "size= and fit=", to_follow)
    _check_same_data(examples, preset)
    validation, tests = load(source, data, "validation", bar("reading")), None
    if validation.shape != examples.shape:
        raise ValueError(
            f"{source} validates on {list(validation.shape)}, not {list(examples.shape)}: give a size and fit"
        )
    with suppress(EmptySplitError):
        tests = len(load(source, data, "test", bar("reading")))
    return examples, validation, tests


def _origin(preset: Preset, examples: Examples, summary: Summary, words: tuple[str, ...] | None) -> Origin:
    settings = preset.settings
    somewhere_else = preset.source == "digits" or "://" in preset.source
    return Origin(
        recipe=preset.name,
        source=preset.source if somewhere_else else str(Path(preset.source).resolve()),
        data=settings.data,
        uint16=examples.uint16,
        class_names=examples.class_names,
        skipped=examples.skipped,
        validate_on=settings.validate_on,
        samples=settings.samples,
        summary=summary,
        command=words,
    )


def _plan(preset: Preset, examples: Examples) -> Plan[TrainConfig]:
    training = preset.settings.training
    if preset.resumed is not None:
        training = training.resolve_auto(preset.resumed.training)
    return plan(preset.settings.model, training, examples, this_machine(training.torch_device()))


def _possible(preset: Preset) -> list[str]:
    of_weights = preset.settings.start_from or preset.resumed
    return [option for option in CHANGEABLE if option != "model.dim" or not of_weights]


def _changeable(preset: Preset) -> list[str]:
    if preset.name != "custom" or preset.resumed:
        return []
    return [option for option in _possible(preset) if option not in preset.given]


def _summary(found: Plan[TrainConfig], validation: int, test: int | None) -> Summary:
    return Summary(
        train=found.examples or 0,
        validation=validation,
        test=test,
        parameters=found.parameters,
        memory_bytes=found.needed,
    )


def _lines(source: str, rows: Mapping[str, str], axes: int) -> list[str]:
    rows = {name: text for name, text in rows.items() if name not in ("source", "data")}
    if not can_be_shown(axes):
        rows["pictures"] = "none: samples of one to three axes are drawn"
    rows["to change"] = "--data.size, --data.fit, --model.dim, --training.steps, ...:"
    rows[""] = f"axial train {shlex.quote(source)} --help"
    return [f"{source}:", *(f"  {name:<10}  {text}" for name, text in rows.items())]


def _check_same_data(examples: Examples, preset: Preset) -> None:
    record = preset.resumed
    if record is not None and examples.fingerprint != record.data.fingerprint:
        raise ValueError(
            f"{preset.source} holds other training examples than {preset.settings.out} was begun with: a run goes on "
            "with its own data only, wherever it lies; for other data begin another run with --out"
        )


def evaluation_of(validation: Examples, config: AxialTransformerConfig, training: TrainConfig) -> Collective:
    """Return a callback of `train` that evaluates examples."""
    values, label = torch.from_numpy(validation.values), _labels(validation, config, training)

    def callback(model: AxialTransformer, step: int, fill: Fill) -> Mapping[str, float]:
        batch_size = training.batch_size // training.accumulate
        found = evaluate(model, values, label, batch_size=batch_size, progress=bar("validation"), fill=fill)
        return {"bits_per_dim": found.bits_per_dim, "standard_error": found.standard_error}

    return Collective(callback)


def pictures_of(
    validation: Examples, config: AxialTransformerConfig, training: TrainConfig, folder: Path, samples: int
) -> Callable[[AxialTransformer, int], Mapping[str, NDArray[np.uint8]]] | None:
    """Return a callback of `train` that draws samples, and bits of the examples, or None."""
    if not samples or not can_be_shown(len(config.shape)):
        return None
    known = torch.from_numpy(validation.values[:samples]) if config.known_channels else None
    most = min(SHOWN if len(config.shape) == 2 else SHOWN // 2, training.batch_size // training.accumulate)
    spread, uint16 = validation.spread(most), validation.uint16
    shown, label = torch.from_numpy(spread.values), _labels(spread, config, training)

    def callback(model: AxialTransformer, step: int) -> Mapping[str, NDArray[np.uint8]]:
        count = samples if known is None else len(known)
        values = sample(model, count, generator=torch.Generator().manual_seed(step), known=known)
        grid = image_grid(values.cpu().numpy(), num_values=config.num_values, uint16=uint16)
        save_picture(folder / f"samples/step-{step:08d}.png", grid)
        bits = bits_map(model, shown, label).cpu().numpy()
        save_picture(folder / BITS, under_examples(shown.numpy(), bits, config.num_values, uint16))
        return {"samples": np.asarray(grid)}

    return callback


def _labels(validation: Examples, config: AxialTransformerConfig, training: TrainConfig) -> torch.Tensor | None:
    if config.num_classes is None or training.label_dropout or validation.labels is None:
        return None
    return torch.from_numpy(validation.labels)


def report(out: Path, result: TrainResult) -> None:
    """Print the run's model and bits/dim, or how to resume."""
    if result.ending == "interrupted":
        print(f"stopped at step {result.step}; go on with: {command('train', out)}")
        return
    if result.best_bits_per_dim is not None:
        record = read_run(out)
        about = None if record is None else record.about
        per_value = f" (per byte; {2 * result.best_bits_per_dim:.4f} bits per 16-bit value)"
        unit = "bits/dim" + (per_value if about is not None and about.uint16 else "")
        print(f"validation {result.best_bits_per_dim:.4f} {unit} at step {result.best_step}")
    print(f"{result.ending} at step {result.step} after {result.seconds:.0f} s; the model is in {out}")
    print(f"next: {command('evaluate', out)}; {command('sample', out)}")
