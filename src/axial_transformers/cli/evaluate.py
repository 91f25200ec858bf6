"""axial evaluate: exact bits/dim."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from rich.console import Console
from rich.table import Table

from axial_transformers.cli.parsing import Positional, parse
from axial_transformers.cli.runs import Weights, open_model
from axial_transformers.data import Examples, Split, imagenet_version
from axial_transformers.likelihood.evaluation import evaluate
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.progress import bar


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Exact bits/dim over every example of a data set.

    axial evaluate runs/digits
    axial evaluate runs/fashion_mnist fashion_mnist_test.npz --json
    axial evaluate runs/clips clips_test.npz --given-frames 1
    """

    model: Positional[str]
    """Folder of a run or an exported model, or a hub id."""
    source: Positional[str | None] = None
    """Folder, array, video or TFRecord file, shards, or digits. None: the data that the run was trained on."""
    split: Split | None = None
    """Which part of the data. None: all of a source that is given; of the run's own data the test part, or the
    validation part where there is no test part."""
    weights: Weights = "ema"
    """The running average of the weights, or the raw ones of the newest checkpoint."""
    labels: bool = False
    """Tell a class-conditional model the labels."""
    skip_bad: int | None = None
    """At most so many damaged records of shards are left out. None: as many as when the model was trained."""
    given_frames: int = 0
    """Of clips, count the bits of the frames after the first so many only. Models whose first frames are known count no
    others anyway."""
    batch_size: int = 64
    """Examples at a time; the result does not depend on it."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of the matrix products."""
    device: str = "auto"
    """cuda, cuda:1, cpu, ...; auto takes CUDA if there is any."""
    json: bool = False
    """Print one JSON object."""


def main(argv: Sequence[str]) -> None:
    """Runs the verb."""
    options = parse(Evaluate, argv, "evaluate")
    trained = open_model(options.model, options.weights, options.device)
    if options.skip_bad is not None:
        trained = replace(trained, data=replace(trained.data, skip_bad=options.skip_bad))
    examples, described = trained.examples(options.source, options.split)
    if options.labels and examples.labels is None:
        raise ValueError(f"{described} has no labels")
    given_frames = _given_frames(trained.model.config, options.given_frames)
    result = evaluate(
        trained.model,
        examples.values,
        torch.from_numpy(examples.labels) if options.labels and examples.labels is not None else None,
        batch_size=options.batch_size,
        given_frames=given_frames,
        autocast=torch.bfloat16 if options.precision == "bfloat16" else None,
        progress=bar("bits/dim"),
    )
    figures = {
        **result.to_json(),
        "data": described,
        "fingerprint": examples.fingerprint,
        "weights": trained.weights,
        "labels": options.labels,
        "precision": options.precision,
    }
    if given_frames:
        figures["given_frames"] = given_frames
    if examples.skipped:
        figures["skipped"] = len(examples.skipped)
    if version := _imagenet_version(examples):
        figures["version"] = version
    if options.json:
        print(json.dumps(figures))
        return
    table = Table(show_header=False, box=None)
    table.add_row(
        "bits/dim", f"[bold]{result.bits_per_dim:.4f}[/bold] ± {result.standard_error:.4f} (standard error over images)"
    )
    skipped = f"; {len(examples.skipped)} damaged ones left out" if examples.skipped else ""
    table.add_row("images", f"{result.images:,}, every one counted{skipped}")
    if given_frames:
        frames = examples.shape[0]
        table.add_row("frames", f"{given_frames + 1} to {frames} of {frames}, given those before")
    table.add_row("data", described)
    table.add_row("fingerprint", str(examples.fingerprint))
    table.add_row("weights", trained.weights)
    table.add_row("labels", "given" if options.labels else "not given")
    if version:
        table.add_row("version", version)
    Console().print(table)


def _given_frames(config: AxialTransformerConfig, wanted: int) -> int:
    """How many of a clip's first frames are given: those that the model always knows, or more."""
    if wanted and len(config.shape) != 3:
        raise ValueError(f"--given-frames {wanted}: this model is not of clips (frames, height, width)")
    known = config.known_channels // config.channels if config.layout == "frames" else 0
    return max(wanted, known)


def _imagenet_version(examples: Examples) -> str | None:
    """Which version of downsampled ImageNet these may be; warns where its numbers must not be set beside others."""
    if (examples.shape, examples.channels) not in (((32, 32), 3), ((64, 64), 3)):
        return None
    return imagenet_version(len(examples))
