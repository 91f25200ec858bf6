"""Images/s of archives beside compiled sampling, and the product rate of the engine.

    python benchmarks/exact_speed.py                                   fashion_mnist, 96 images, one thread
    python benchmarks/exact_speed.py --images 1000 --threads 2 --rounds 1

Sampling, encoding and decoding take turns in one process, best of three. Rates are billions of multiplications a second
of a thread: of linear layers in encoding, whatever else it does, and of one linear layer, in as many
threads, right before and after each encoding; the round with the median share is printed. CPU time with one thread,
wall time otherwise.
"""

import time

import numpy as np
import torch

import axial_transformers as axial
from axial_transformers.engine import Linear, network, parallel_ranges
from axial_transformers.layers.initialisation import Dense
from command_line import run_command


def products(model: axial.AxialTransformer) -> int:
    """Multiplications of linear layers for one image: each layer once at every position (of one-channel models)."""
    weights = sum(layer.weight.numel() for layer in model.modules() if isinstance(layer, Dense))
    return weights * len(model.order)


def tile_rate(seconds, threads: int) -> float:
    """Multiplications/s of a thread by `engine.network.Dense`, on 4,800 rows, 128 inputs and 384 outputs."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4800, 128)).astype(np.float32)
    layer = network.Dense(Linear(rng.standard_normal((128, 384)).astype(np.float32), np.zeros(384, np.float32)))
    times = 20

    def work(first: int, last: int) -> None:
        for _ in range(times):
            layer(x)

    return times * len(x) * 128 * 384 / seconds(lambda: parallel_ranges(work, threads))


def main(*, model: str = "fashion_mnist", images: int = 96, threads: int = 1, rounds: int = 3) -> None:
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter

    def seconds(work) -> float:
        start = clock()
        work()
        return clock() - start

    net = axial.AxialTransformer.from_pretrained(model)

    def sampled(count: int) -> torch.Tensor:
        return axial.sample(net, count, seed=0, compile=True)

    def encode() -> bytes:
        return axial.compress(net, values, verify=False)

    values = sampled(images)
    archive = encode()
    assert torch.equal(axial.decompress(net, archive), values)
    runs = {
        "sampling": lambda: sampled(images),
        "encoding": encode,
        "decoding": lambda: axial.decompress(net, archive),
    }
    rates, shares = dict.fromkeys(runs, 0.0), list[tuple[float, float, float]]()
    for _ in range(rounds):
        for name, run in runs.items():
            before = tile_rate(seconds, threads) if name == "encoding" else 0.0
            rate = images / seconds(run)
            rates[name] = max(rates[name], rate)
            if name == "encoding":
                reached = (before + tile_rate(seconds, threads)) / 2
                rate *= products(net) / threads
                shares.append((rate / reached, rate / 1e9, reached / 1e9))
    for name, rate in rates.items():
        print(f"{name:20}{rate:8.1f} images/s, {rate / rates['sampling']:.2f} of sampling's speed")
    share, rate, reached = sorted(shares)[len(shares) // 2]
    print(f"products {rate:.1f}, {share:.0%} of {reached:.1f} that linear layers reach")
    print(f"{len(archive):,} bytes, {torch.get_num_threads()} threads, torch {torch.__version__}")


if __name__ == "__main__":
    run_command(main, description=__doc__)
