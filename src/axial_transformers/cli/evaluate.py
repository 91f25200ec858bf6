"""axial evaluate: exact bits/dim of a data set."""

import json
import time
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from math import isfinite
from typing import Any

import torch

from axial_transformers.cli.console import print_rows, rank_zero_output
from axial_transformers.cli.options import BatchSize, Device, Model, Precision, Reading, Source, Weights, products_in
from axial_transformers.cli.parsing import parse, require_within
from axial_transformers.data import Examples, Split, imagenet_version
from axial_transformers.likelihood.evaluation import evaluate
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.progress import bar
from axial_transformers.training.processes import processes_on
from axial_transformers.training.trained_model import open_model


@dataclass(frozen=True)
class Evaluate:
    """Exact bits/dim over every example of a data set.

    For example:
      axial evaluate runs/digits
      axial evaluate runs/fashion_mnist fashion_mnist_test.npz --json
      axial evaluate runs/clips clips_test.npz --given-frames 1
      axial evaluate runs/photos other_photos/ --data.fit crop --data.size 32 --limit 1000
      torchrun --nproc-per-node 8 -m axial_transformers evaluate runs/imagenet32
    """

    model: Model
    source: Source = None
    _: KW_ONLY
    split: Split | None = None
    """Part of the data. None: all of a given source; of the run's own data the test part, or else the validation
    part."""
    weights: Weights = "ema"
    labels: bool = False
    """Condition a class-conditional model on the labels."""
    limit: int | None = None
    """Number of examples to evaluate, evenly spaced over the data."""
    data: Reading = Reading()
    given_frames: int = 0
    """First frames of a clip whose bits do not count."""
    batch_size: BatchSize = 64
    precision: Precision = "float32"
    device: Device = "auto"
    json: bool = False
    """Print one JSON object."""


def main(argv: Sequence[str]) -> None:
    """Run the command."""
    with rank_zero_output():
        options = parse(Evaluate, argv, "evaluate")
        require_within("batch-size", options.batch_size, 1)
        require_within("given-frames", options.given_frames, 0)
        require_within("limit", options.limit, 1)
        processes = processes_on(options.device)
        products = products_in(options.precision, processes.device)
    with processes, products:
        with rank_zero_output():
            trained = options.data.of(open_model(options.model, options.weights, str(processes.device)))
            whole, described = trained.examples(options.source, options.split)
            examples = whole.spread(options.limit)
            if options.labels and examples.labels is None:
                raise ValueError(f"{described} has no labels")
            given_frames = _given_frames(trained.model.config, options.given_frames)
        began = time.monotonic()
        result = evaluate(
            trained.model,
            examples.values,
            torch.from_numpy(examples.labels) if options.labels and examples.labels is not None else None,
            batch_size=min(options.batch_size, len(examples)),
            given_frames=given_frames,
            progress=bar("bits/dim"),
            fill=processes.fill,
        )
        seconds = time.monotonic() - began
        precision = "bfloat16" if torch.is_autocast_enabled(processes.device.type) else "float32"
    if not processes.rank_zero:
        return
    metrics = {
        **result.to_json(),
        "data": described,
        "fingerprint": examples.fingerprint,
        "weights": trained.weights,
        "labels": options.labels,
        "precision": precision,
    }
    special = {
        "given_frames": given_frames,
        "skipped": len(examples.skipped),
        "version": _imagenet_version(whole),
        "of_images": len(whole) if len(examples) < len(whole) else None,
    }
    metrics |= {name: value for name, value in special.items() if value}
    if options.json:
        finite = {name: value for name, value in metrics.items() if not isinstance(value, float) or isfinite(value)}
        print(json.dumps(dict.fromkeys(metrics) | finite))  # JSON has no NaN
    else:
        print_rows(_rows(metrics, examples.shape[0]) | {"speed": f"{len(examples) / seconds:.3g} images/s"})


def _rows(metrics: dict[str, Any], frames: int) -> dict[str, str]:
    error = f"± {metrics['standard_error']:.4f} (standard error over images)" if metrics["images"] > 1 else ""
    skipped = f"; {metrics['skipped']} damaged ones left out" if "skipped" in metrics else ""
    counted = f" of {metrics['of_images']:,}" if "of_images" in metrics else ", every one counted"
    rows = {
        "bits/dim": f"{metrics['bits_per_dim']:.4f} {error}",
        "images": f"{metrics['images']:,}{counted}{skipped}",
    }
    if given := metrics.get("given_frames"):
        rows["frames"] = f"{given + 1} to {frames} of {frames}, given those before"
    rows |= {name: metrics[name] for name in ("data", "fingerprint", "weights")}
    rows["labels"] = "given" if metrics["labels"] else "not given"
    if "version" in metrics:
        rows["version"] = metrics["version"]
    return rows


def _given_frames(config: AxialTransformerConfig, wanted: int) -> int:
    if wanted and len(config.shape) != 3:
        raise ValueError(f"--given-frames {wanted}: this model is not of clips (frames, height, width)")
    known = config.known_channels // config.channels if config.layout == "frames" else 0
    return max(wanted, known)


def _imagenet_version(examples: Examples) -> str | None:
    if (examples.shape, examples.channels) not in (((32, 32), 3), ((64, 64), 3)):
        return None
    return imagenet_version(len(examples))
