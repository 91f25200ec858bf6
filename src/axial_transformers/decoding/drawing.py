"""Sample a batch in parts, so that noise and caches of a bounded number of examples are in memory."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from math import ceil, prod
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from axial_transformers.decoding.backend import BackendFactory
from axial_transformers.decoding.backend_choice import choose_backend
from axial_transformers.decoding.choices import Draw, GumbelChoice, KnownFirst, gumbel, skip_noise
from axial_transformers.decoding.decoding_loop import decode
from axial_transformers.models import AxialTransformer, AxialTransformerConfig, Conditioning
from axial_transformers.planning.machine import free_memory
from axial_transformers.planning.operations import engineering
from axial_transformers.progress import Item, Progress

MOST_NUMBERS = 1 << 27
"""Numbers of noise in memory, and of caches: 537 MB each, the noise of 42 images of 64x64x3 with 256 values.

The noise of a single example may be more. Not measured; chosen so that sampling fits beside a model on a small machine.
"""
DRAWN_ALIKE = 4
"""The samples of a process are a multiple of this.

The kernels of that time computed samples by four, and a rest in another order. The exact kernels of today give a sample
the same bits in any batch. Eager decoding does not promise that.
"""
LEAST_AT_ONCE = 16
"""Samples whose caches may exceed the limit: with fewer at a time, the weights are read too often."""
SHARE_OF_GPU = 4
"""Noise may take this fraction, 1 / 4, of a GPU's free memory, and caches as much. Not measured."""


class Numbers(NamedTuple):
    """Numbers of four bytes that decoding needs for one example."""

    noise: int
    state: int
    """Caches, and the context of all positions."""


def numbers_each(config: AxialTransformerConfig) -> Numbers:
    """Return the numbers that decoding needs for one example."""
    sites = prod(config.shape) * config.channels
    return Numbers(sites * config.num_values, cache_numbers(config) + sites * config.dim)


def cache_numbers(config: AxialTransformerConfig) -> int:
    """Return the numbers of keys and values in the caches of one example, or of its LSTM's state."""
    shape, dim = config.bijection.shape, config.dim
    outer = sum(
        layers // (len(shape) - level) * prod(shape[level:])
        for level, layers in enumerate(config.layers_of_outer_decoders)
    )
    inner = config.inner_layers * shape[-1] if config.inner == "attention" else 1
    return 2 * dim * (outer + inner)


def most_together(config: AxialTransformerConfig, most: int | None = None) -> int:
    """Return how many examples to sample at a time, with at most `most` numbers of noise, and of caches."""
    most, each = most or MOST_NUMBERS, numbers_each(config)
    return max(1, min(most // each.noise, max(LEAST_AT_ONCE, most // each.state)))


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A batch of examples to sample, each from noise of its own."""

    model: AxialTransformer
    draw: Draw
    known: Integer[Tensor, "b *a c"]
    """Values of known channels, and of the mask, are kept."""
    mask: Bool[Tensor, "*a c"] | None = None
    """True where values are known; None: nowhere."""
    conditioning: Conditioning
    noise: Float[Tensor, "b *a c v"] | None
    """None: generated part by part, when needed."""
    generator: torch.Generator | None

    def __post_init__(self) -> None:
        wanted = [len(self.known), *self._noise_shape]
        if self.noise is not None and list(self.noise.shape) != wanted:
            raise ValueError(f"noise must be {wanted}, not {list(self.noise.shape)}")

    def values(self, compile: bool | None, progress: Progress) -> Integer[Tensor, "b *a c"]:
        """Return the examples [B, *A, C] on the model's device: uint8 if V <= 256, else int64.

        Raises:
            ValueError: the weights, the noise or the conditioning have NaN or infinity.
        """
        backend, parts = partial(choose_backend, compile=compile), self.parts()
        for part in parts:  # finds a mistake before hours of work
            self.model.check(self.known[part])
            self.model.embed_conditioning(len(self.known[part]), self.conditioning.of(part))
        self._require_numbers()
        rows = len(self.model.order) // self.model.layout.shape[-1]
        steps = iter(progress(range(rows * len(parts))))

        def counted(items: Iterable[Item], /) -> Iterator[Item]:
            for item, _ in zip(items, steps):
                yield item

        dtype = torch.uint8 if self.model.config.num_values <= 256 else torch.int64
        values = [self._values(part, backend, counted).to(dtype) for part in parts]
        next(steps, None)  # ends a progress bar
        return torch.cat(values)

    def parts(self) -> list[slice]:
        """Return equal parts of the batch whose noise and caches fit; one part if the noise is given."""
        batch, most = len(self.known), most_together(self.model.config, self._most_numbers())
        if self.noise is not None or batch <= most:
            return [slice(0, batch)]
        size = ceil(batch / ceil(batch / most))
        return [slice(start, min(start + size, batch)) for start in range(0, batch, size)]

    def _require_numbers(self) -> None:
        weights = self.model.state_dict()
        total = torch.stack([weight.sum() for weight in weights.values()]).sum()
        if not total.isfinite():
            for name, weight in weights.items():
                if not weight.isfinite().all():
                    raise ValueError(f"the model's {name} holds NaN or infinity: nothing can be drawn with it")
        for name, given in (("noise", self.noise), ("cond", self.conditioning.cond)):
            if given is not None and given.isnan().any():
                raise ValueError(f"{name} holds NaN, so that nothing can be drawn with it: give numbers")

    @property
    def _noise_shape(self) -> tuple[int, ...]:
        config = self.model.config
        return (*config.shape, config.channels, config.num_values)

    def _most_numbers(self) -> int:
        device = self.model.device
        if device.type != "cuda":
            return MOST_NUMBERS
        return max(MOST_NUMBERS, torch.cuda.mem_get_info(device)[0] // SHARE_OF_GPU // torch.float32.itemsize)

    def _values(self, part: slice, backend: BackendFactory, progress: Progress) -> Tensor:
        known, device = self.model.check(self.known[part]), self.model.device
        noise = self.noise
        if noise is None:
            noise = gumbel((len(known), *self._noise_shape), self.generator, device)
        drawn = GumbelChoice(noise=noise.to(device), draw=self.draw)
        choose = drawn if self.mask is None else KnownFirst(known, self.mask, drawn)
        return decode(self.model, choose, known, self.conditioning.of(part), backend, progress)


def draw_in_shares(
    config: AxialTransformerConfig,
    count: int,
    seed: int,
    draw: Callable[[slice, torch.Generator], Tensor],
    processes: int,
    fill: Callable[[Tensor, Iterable[slice], Callable[[slice], Tensor]], Tensor],
) -> Integer[Tensor, "b *a c"]:
    """Return `count` samples [count, *A, C] in every process; of P processes, each computes about one in P.

    The noise of a sample depends only on the seed and its number. So the samples do not depend on P.

    Args:
        draw: returns the samples of these numbers, with noise from the generator.
        fill: computes the parts, such as `Processes.fill`.
    """

    def draw_part(part: slice) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        skip_noise(part.start * numbers_each(config).noise, generator)
        return draw(part, generator)

    share = DRAWN_ALIKE * ceil(count / (processes * DRAWN_ALIKE))
    dtype = torch.uint8 if config.num_values <= 256 else torch.int64
    whole = torch.zeros(count, *config.shape, config.channels, dtype=dtype)
    return fill(whole, (slice(start, min(start + share, count)) for start in range(0, count, share)), draw_part)


def require_room(config: AxialTransformerConfig, count: int, inputs: int = 1, pixels: int = 0) -> None:
    """Raise ValueError if `count` examples would not fit into the memory of this machine.

    Args:
        inputs: completions: inputs with `count` examples each.
        pixels: pixels of the image that will be made of each position.
    """
    available = free_memory()
    if available is None:
        return
    sites, value = prod(config.shape) * config.channels, 1 if config.num_values <= 256 else 8
    each = inputs * sites * (3 * value + 4 + 4 * pixels)  # enlarged copies of the image
    decoding, together = 4 * sum(numbers_each(config)), most_together(config)
    need = each * count + decoding * min(count * inputs, together)
    if need > available:
        room = max((available - decoding * together) // each, available // (each + decoding * inputs))
        raise ValueError(
            f"count={count} needs {engineering(need)}B of memory, but {engineering(available)}B are available: "
            f"about {min(room, count - 1):,} would fit"
        )


def comes_first(mask: Bool[Tensor, "*a c"], order: Integer[Tensor, "sites axes"]) -> bool:
    """Return True if no known position follows an unknown one in generation order."""
    in_order = mask[tuple(order.T)]
    return not bool((in_order[1:] & ~in_order[:-1]).any())
