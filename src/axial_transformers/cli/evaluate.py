"""axial evaluate: exact bits/dim of a data set."""

import json
import time
from math import isfinite
from typing import Any

import torch

from axial_transformers.cli.commands import Evaluate
from axial_transformers.cli.console import print_rows, rank_zero_output
from axial_transformers.cli.options import products_in
from axial_transformers.data import Examples, imagenet_version
from axial_transformers.likelihood.evaluation import evaluate
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.progress import bar
from axial_transformers.training.processes import processes_on
from axial_transformers.wording import plural


def main(options: Evaluate) -> None:
    """Run the command."""
    with rank_zero_output():
        processes = processes_on(options.device)
        products = products_in(options.precision, processes.device)
    with processes, products:
        with rank_zero_output():
            trained = options.opened(processes.device)
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
        "given_frames": given_frames or None,
        "skipped": len(examples.skipped) or None,
        "version": _imagenet_version(whole),
        "of_images": len(whole) if len(examples) < len(whole) else None,
    }
    metrics = {name: value for name, value in metrics.items() if value is not None}
    if options.json:
        nan = {name for name, value in metrics.items() if isinstance(value, float) and not isfinite(value)}
        print(json.dumps(metrics | dict.fromkeys(nan)))  # JSON has no NaN
    else:
        kind = plural(trained.kind)
        print_rows(_rows(metrics, examples.shape[0], kind) | {"speed": f"{len(examples) / seconds:.3g} {kind}/s"})


def _rows(metrics: dict[str, Any], frames: int, kind: str) -> dict[str, str]:
    error = f" ± {metrics['standard_error']:.4f} (standard error over {kind})" if metrics["images"] > 1 else ""
    counted = f" of {metrics['of_images']:,}" if "of_images" in metrics else ", every one counted"
    skipped = f"; {metrics['skipped']} damaged ones left out" if "skipped" in metrics else ""
    rows = {
        "bits/dim": f"{metrics['bits_per_dim']:.4f}{error}",
        kind: f"{metrics['images']:,}{counted}{skipped}",
    }
    if given := metrics.get("given_frames"):
        rows["frames"] = f"{given + 1} to {frames} of {frames}, given those before"
    rows |= {name: metrics[name] for name in ("data", "fingerprint", "weights", "version") if name in metrics}
    return rows | {"labels": "given" if metrics["labels"] else "not given"}


def _given_frames(config: AxialTransformerConfig, wanted: int) -> int:
    if wanted and len(config.shape) != 3:
        raise ValueError(f"--given-frames {wanted}: this model is not of clips (frames, height, width)")
    known = config.known_channels // config.channels if config.layout == "frames" else 0
    return max(wanted, known)


def _imagenet_version(examples: Examples) -> str | None:
    sizes = ((32, 32), 3), ((64, 64), 3)
    return imagenet_version(len(examples)) if (examples.shape, examples.channels) in sizes else None
