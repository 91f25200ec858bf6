"""axial evaluate: exact bits/dim of a data set."""

import json
from math import isfinite

import torch

from axial_transformers.cli.commands import Evaluate
from axial_transformers.cli.console import print_rows, rank_zero_output
from axial_transformers.cli.options import products_in
from axial_transformers.likelihood.evaluation import evaluate
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
            labels = trained.labels(examples, described, options.labels)
            config = trained.model.config
            known = config.known_channels // config.channels if config.layout == "frames" else 0
            given_frames = max(options.given_frames, known)
        result = evaluate(
            trained.model,
            examples.values,
            labels,
            batch_size=min(options.batch_size, len(examples)),
            given_frames=given_frames,
            progress=bar("bits/dim"),
            fill=processes.fill,
        )
        precision = "bfloat16" if torch.is_autocast_enabled(processes.device.type) else "float32"
    if not processes.rank_zero:
        return
    metrics = {
        **result.to_json(),
        "data": described,
        "fingerprint": examples.fingerprint,
        "weights": trained.weights,
        "labels": labels is not None,
        "precision": precision,
        "given_frames": given_frames or None,
        "of_images": len(whole) if len(examples) < len(whole) else None,
    }
    metrics = {name: value for name, value in metrics.items() if value is not None}
    if options.json:
        nan = {name for name, value in metrics.items() if isinstance(value, float) and not isfinite(value)}
        print(json.dumps(metrics | dict.fromkeys(nan)))  # JSON has no NaN
        return
    rows = {name.replace("_", " "): str(value) for name, value in metrics.items() if name not in result.to_json()}
    kind = plural(trained.kind)
    error = f" ± {result.standard_error:.4f} (standard error over {kind})" if result.images > 1 else ""
    print_rows({"bits/dim": f"{result.bits_per_dim:.4f}{error}", kind: f"{result.images:,}"} | rows)
