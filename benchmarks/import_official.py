"""Seconds and peak memory of importing a checkpoint as large as the published imagenet32 (2.7 GB; needs 5 GB of disk).

    python benchmarks/import_official.py [RECIPE, default imagenet32_released]

Small random numbers stand for the weights; raw ones and their averages, as in the published files. The import runs in a
process of its own, whose peak is compared with what it held before, and with the size of the model.
"""

import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from axial_transformers import recipes
from axial_transformers.importers.official import import_official, import_official_to
from axial_transformers.importers.official_variables import AVERAGE, variables
from axial_transformers.models import AxialTransformer, AxialTransformerConfig

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from tensor_bundle_writer import write_bundle

SCOPE = "ar_decoder/transformer2d/"


def checkpoint(config: AxialTransformerConfig) -> Iterator[tuple[str, np.ndarray]]:
    with torch.device("meta"):
        model = AxialTransformer(config)
    shapes = {name: tuple(view.shape) for name, view in variables(model.state_dict(), config, SCOPE).items()}
    generator = np.random.default_rng(0)
    for name in sorted({name + suffix for name in shapes for suffix in ("", AVERAGE)}):
        yield name, generator.random(shapes[name.removesuffix(AVERAGE)], np.float32) / 50
    yield "global_step", np.array(1_000_000)


def measured(folder: Path, model_folder: Path | None, verify: bool) -> dict[str, float]:
    before, start = peak(), time.perf_counter()
    if model_folder is None:
        import_official(folder, verify=verify)
    else:
        import_official_to(folder, model_folder, verify=verify)
    return {
        "seconds": round(time.perf_counter() - start, 2),
        "peak_mb_before": before,
        "peak_mb": peak(),
    }


def peak() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "imagenet32_released"
    config = recipes.NAMED[name]().model
    with tempfile.TemporaryDirectory() as temporary, get_context("spawn").Pool(1, maxtasksperchild=1) as fresh:
        folder = Path(temporary) / "tensorflow"
        folder.mkdir()
        start = time.perf_counter()
        write_bundle(folder / "model.ckpt", checkpoint(config))
        print(f"written in {time.perf_counter() - start:.0f} s", file=sys.stderr)
        with torch.device("meta"):
            parameters = sum(parameter.numel() for parameter in AxialTransformer(config).parameters())
        figures = {
            "recipe": name,
            "parameters": parameters,
            "model_mb": round(4 * parameters / 1e6),
            "checkpoint_mb": round(sum(file.stat().st_size for file in folder.iterdir()) / 1e6),
        }
        runs = {
            "import": (None, False),
            "import_verified": (None, True),
            "import_to_folder": (Path(temporary) / "model", False),
        }
        for run, arguments in runs.items():
            figures[run] = fresh.apply(measured, (folder, *arguments))
            print(run, figures[run], file=sys.stderr)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
