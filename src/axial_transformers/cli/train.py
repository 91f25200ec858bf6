"""axial train: a recipe, or a model of one's own data."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from axial_transformers.cli import INTERRUPTED
from axial_transformers.cli.runs import untrusted
from axial_transformers.cli.settings import Preset, Settings, list_recipes, resolve_preset
from axial_transformers.cli.wording import command
from axial_transformers.data import Examples, load, save_grid
from axial_transformers.decoding.sampling import sample
from axial_transformers.likelihood.evaluation import evaluate
from axial_transformers.models import AxialTransformer
from axial_transformers.progress import Bar, bar, rank
from axial_transformers.training import Origin, TrainResult, train

HELP = """\
usage: axial train RECIPE [SOURCE] [OVERRIDES]    a recipe, on its own data or on SOURCE
       axial train SOURCE [OVERRIDES]             a model that fits the data in SOURCE
       axial train RUN [OVERRIDES]                resume the run in the folder RUN
       axial train RUN SOURCE [OVERRIDES]         the same, if its data has another place now

  axial train digits --training.steps 500 --model.dim 64
  axial train photos32 my_photos/ --out runs/photos
  axial train scans.npz --training.time-limit 60
  axial train 'shards/train-{000..099}.tar' --data.size 64 --data.fit crop --skip-bad 3
  axial train digits --help                       every setting with its default
  torchrun --nproc-per-node 2 -m axial_transformers.cli train photos32 my_photos/    on every GPU or core

SOURCE is a folder of images or arrays, an .npz or .npy file, shards such as 'train-{000..099}.tar', or the word digits.
Recipes, and what they reach:
"""


def main(argv: Sequence[str]) -> int:
    """Runs the verb."""
    if not argv or argv[0] in ("-h", "--help"):
        print(HELP)
        print(list_recipes())
        return 0
    preset = resolve_preset(argv, "train")
    result = run(preset)
    if rank() == 0:  # of the processes that torchrun started, one speaks
        report(preset.settings.out, result)
    return INTERRUPTED if result.ending == "interrupted" else 0


def run(preset: Preset) -> TrainResult:
    """Trains the preset's model; sample grids and checkpoints go into its folder."""
    settings = preset.settings
    if not preset.source:
        raise ValueError(f"recipe {preset.name} has no data of its own: axial train {preset.name} FOLDER_OR_FILE")
    if not (preset.is_own or settings.trust_source):
        raise untrusted(settings.out, preset.source)
    examples = preset.examples or load(preset.source, settings.data, "train", bar("reading"))
    check_shape(examples, preset)
    validation = load(preset.source, settings.data, "validation", bar("reading"))[: settings.validate_on]
    torch.manual_seed(settings.training.seed)
    somewhere_else = preset.source == "digits" or "://" in preset.source
    source = preset.source if somewhere_else else str(Path(preset.source).resolve())
    return train(
        AxialTransformer(settings.model),
        examples,
        settings.training,
        settings.out,
        evaluate=_validate(validation, settings),
        sample=_draw(validation, settings),
        resume=settings.resume,
        about=Origin(
            recipe=preset.name,
            source=source,
            data=settings.data,
            uint16=examples.uint16,
            class_names=examples.class_names,
            skipped=examples.skipped,
        ),
        progress=Bar("training"),
    )


def check_shape(examples: Examples, preset: Preset) -> None:
    """Raises ValueError, with what to do, where the data has not the shape of the model."""
    model = preset.settings.model
    data_shape, model_shape = (*examples.shape, examples.channels), (*model.shape, model.channels)
    if data_shape != model_shape:
        here, there = ("x".join(map(str, shape)) for shape in (data_shape, model_shape))
        raise ValueError(
            f"{preset.source} holds {here}, but {preset.name} models {there}: resize with --data.size and --data.fit, "
            f"or let the model follow the data: {command('train', preset.source)}"
        )


def report(out: Path, result: TrainResult) -> None:
    """Prints the model's folder and its bits/dim on the validation examples, or how to resume."""
    if result.ending == "interrupted":
        print(f"stopped at step {result.step}; go on with: {command('train', out)}")
        return
    if result.best_bits_per_dim is not None:
        print(f"validation {result.best_bits_per_dim:.4f} bits/dim at step {result.best_step}")
    print(f"{result.ending} at step {result.step} after {result.seconds:.0f} s; the model is in {out}")
    print(f"next: {command('evaluate', out)}; {command('sample', out)}")


def _validate(validation: Examples, settings: Settings) -> Callable[[AxialTransformer, int], Mapping[str, float]]:
    values = torch.from_numpy(validation.values)
    label = None
    if (
        settings.model.num_classes is not None
        and settings.training.label_dropout == 0
        and validation.labels is not None
    ):
        label = torch.from_numpy(validation.labels)

    def callback(model: AxialTransformer, step: int) -> Mapping[str, float]:
        figures = evaluate(model, values, label, progress=bar("validation"))
        return {"bits_per_dim": figures.bits_per_dim, "standard_error": figures.standard_error}

    return callback


def _draw(validation: Examples, settings: Settings) -> Callable[[AxialTransformer, int], None]:
    known = torch.from_numpy(validation.values[: settings.samples]) if settings.model.known_channels else None

    def callback(model: AxialTransformer, step: int) -> None:
        count = settings.samples if known is None else len(known)
        values = sample(model, count, generator=torch.Generator().manual_seed(step), known=known)
        path = settings.out / "samples" / f"step-{step:08d}.png"
        save_grid(path, values.cpu().numpy(), scale=2, num_values=settings.model.num_values)

    return callback
