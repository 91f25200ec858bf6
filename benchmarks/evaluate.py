"""Evaluation by kernels of whole blocks, a few images at a time, beside layers on the whole batch.

    python benchmarks/evaluate.py

Interleaved in one process; both must agree. The last line is JSON: seconds of one batch, GFLOP/s, the share of the rate
of a large product of torch, and the ratio.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import tyro
from torch import Tensor

from axial_transformers.costs.operations import forward_operations
from axial_transformers.kernels.registers import features, lanes
from axial_transformers.layers.initialisation import randomise
from axial_transformers.likelihood import bits, bits_per_dim
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.ops import compiled_block
from timing import interleaved

LARGE = 2048
"""Rows and columns of the product that is the measure."""


@contextmanager
def layer_by_layer() -> Iterator[None]:
    """The kernels of whole blocks are not taken, and a batch is not split."""
    as_shipped = compiled_block.PAYS_FROM, bits.PART
    compiled_block.PAYS_FROM = bits.PART = 2**62
    try:
        yield
    finally:
        compiled_block.PAYS_FROM, bits.PART = as_shipped


def main(
    width: int = 128, batch: int = 64, size: int = 32, channels: int = 3, ratio: float = 1.0, rounds: int = 5
) -> None:
    """Times one batch of `axial evaluate` in float32, 2+2+2 layers."""
    torch.set_num_threads(1)
    config = AxialTransformerConfig(
        shape=(size, size), channels=channels, dim=width, heads=4, mlp_ratio=ratio,
        encoder_layers=2, outer_layers=2, inner_layers=2,
    )  # fmt: skip
    model = AxialTransformer(config).eval()
    randomise(model, torch.Generator().manual_seed(0))
    x = torch.randint(256, (batch, size, size, channels))
    a, b = torch.randn(LARGE, LARGE), torch.randn(LARGE, LARGE)

    def layers() -> Tensor:
        with layer_by_layer():
            return bits_per_dim(model, x)

    torch.testing.assert_close(bits_per_dim(model, x), layers(), rtol=1e-4, atol=0)
    seconds = interleaved(
        {"kernels": lambda: bits_per_dim(model, x), "layers": layers, "product": lambda: a @ b}, rounds
    )
    operations = batch * forward_operations(config)
    rates = {name: operations / seconds[name] for name in ("kernels", "layers")}
    rates["product"] = 2 * LARGE**3 / seconds["product"]
    print(
        json.dumps(
            {
                "torch": torch.__version__,
                "capability": torch.backends.cpu.get_cpu_capability(),
                "lanes": lanes(features()),
                "width": width,
                "batch": batch,
                "seconds": {name: round(taken, 3) for name, taken in seconds.items()},
                "GFLOP/s": {name: round(rate / 1e9, 1) for name, rate in rates.items()},
                "share of the product rate": {n: round(rates[n] / rates["product"], 3) for n in ("kernels", "layers")},
                "kernels are times as fast": round(seconds["layers"] / seconds["kernels"], 2),
            }
        )
    )


if __name__ == "__main__":
    tyro.cli(main)
