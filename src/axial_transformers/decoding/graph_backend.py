"""Decode with CUDA graphs: one of a row, and one of a step of each outer decoder.

A graph starts all its GPU kernels at once. Launched one by one, the kernels of a position take longer to start than to
run. A model keeps the graphs of its last decoding until it decodes something else or is gone. They hold memory:

- keys and values of one decoding: `sampling.cache_numbers` for each example;
- what a row and a step compute in between;
- under autocast, copies in its precision of the linear layers of inner and outer decoders, at most half the size of a
  float32 model. A step then reads two bytes of each weight. A cast inside the graph would move eight.
"""

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from operator import setitem
from weakref import WeakKeyDictionary, finalize

import torch
from torch import Tensor

from axial_transformers.decoding.backend import Backend, eager, walk_row
from axial_transformers.decoding.choices import NoiseChoice
from axial_transformers.decoding.decoding_loop import decode
from axial_transformers.decoding.noise import gumbel, uniform
from axial_transformers.exact.row_predictions import RowPredictions
from axial_transformers.layers.initialisation import Dense, randomise
from axial_transformers.machine import multiplies_bfloat16
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.models.stacks import OuterDecoder
from axial_transformers.ops.cuda_graphs import Graph

MAX_ROW = 1 << 12
"""Positions of a row times layers of the inner decoder: each adds about twenty GPU kernels to a graph, and longer rows
would take long to record. Not measured."""
TRIED = AxialTransformerConfig(shape=(2, 3, 4), num_values=16, dim=16, heads=2, outer_layers=(3, 2), inner_layers=1)
"""A model of the self-test: two outer decoders, and heads of a width that attention in bfloat16 takes."""
TRIED_PIXELS = replace(
    TRIED, channels=2, layout="pixels", values="ordinal", centred=True, activity=True, gated_convolutions=1
)
"""Another one: positions of two values, predictions, and gated convolutions."""


class RecordedSteps:
    """The steps of an outer decoder as one graph, which serves all of them, and holds the caches."""

    def __init__(self, outer: OuterDecoder, u: Tensor):
        caches = outer.start(len(u))
        self.caches = [tensor for block in caches for part in block for tensor in part]
        self.graph = Graph(lambda u, i: outer.step(u, i, caches), u, torch.zeros(1, dtype=torch.int64, device=u.device))

    def start(self, batch: int) -> None:
        """Empty the caches: a step multiplies by zero what no step has written yet, and that must be finite."""
        for part in self.caches:
            part.zero_()

    def step(self, u: Tensor, i: int, state: None) -> Tensor:
        """See `Steps.step`."""
        return self.graph(u, torch.full((1,), i, device=u.device))


@dataclass
class Recorded:
    """What a model keeps of its last decoding."""

    key: object
    """Where the weights are, and what the graphs depend on: they serve no other decodings."""
    network: AxialTransformer
    """What is recorded: it has the tensors of the model, but for copies of weights in the precision of autocast."""
    steps: list[RecordedSteps]
    row: Graph | None = None


_kept: WeakKeyDictionary[AxialTransformer, Recorded] = WeakKeyDictionary()


@torch.no_grad()
def graphs(model: AxialTransformer, choose: NoiseChoice, batch: int) -> Backend:
    """Return the eager backend, with the kernels of a row, and of a step of an outer decoder, as CUDA graphs.

    The first decoding records them. The model keeps them for decodings of equal shapes, dtypes and options. Graphs read
    the weights at their addresses, and copies that each decoding makes of them. So they use new values there. If
    weights lie elsewhere, all is recorded anew. A decoding takes what the model keeps, and gives it back when the
    backend is gone: two at a time have graphs of their own.
    """
    recorded = _taken(model, choose.of_row(model.order[:1]), batch)

    def row(context: Tensor, positions: Tensor, predictions: RowPredictions | None) -> Tensor:
        choice = choose.of_row(positions)
        assert choice.known is not None

        def work(context: Tensor, noise: Tensor, known: Tensor, *held: Tensor) -> Tensor:
            own = predictions and RowPredictions._make([*held, predictions.num_values])
            return walk_row(recorded.network, context, replace(choice, noise=noise, known=known).draw, own)

        inputs = context, choice.noise, choice.known, *(predictions[:-1] if predictions else ())
        recorded.row = recorded.row or Graph(work, *inputs)
        chosen = recorded.row(*inputs).clone()
        if predictions:
            predictions.values.copy_(recorded.row.inputs[3])
            predictions.sizes.copy_(recorded.row.inputs[7])
        return chosen

    backend = replace(eager(model, choose), row=row, outer_decoders=recorded.steps)
    finalize(backend, setitem, _kept, model, recorded)
    return backend


def _taken(model: AxialTransformer, choice: NoiseChoice, batch: int) -> Recorded:
    """Return what the model keeps, its copies made again of the weights; or graphs of steps that are recorded anew."""
    tensors = (*model.parameters(), *model.buffers())
    device = model.device.type
    half = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    precision = half, torch.backends.cuda.matmul.fp32_precision, torch.is_inference_mode_enabled()
    key = precision, choice.sampler, choice.noise.shape, choice.noise.dtype, [tensor.data_ptr() for tensor in tensors]
    found = _kept.pop(model, None)
    if found and found.key == key:
        for own, new in zip(found.network.parameters(), model.parameters()):
            if own is not new:
                own.copy_(new)
        return found
    del found  # frees its memory first
    taken: dict[int, Tensor] = {id(tensor): tensor for tensor in tensors}
    for layer in (*model.inner_decoder.modules(), *model.outer_decoders.modules()):
        if half and isinstance(layer, Dense) and layer.weight.dtype == torch.float32:
            taken |= {id(own): torch.nn.Parameter(own.to(half), requires_grad=False) for own in layer.parameters()}
    network = deepcopy(model, taken).eval()  # it takes from `taken` what it would copy: the tensors, by identity
    positions = network.position.tables[0]
    slabs = [positions.new_zeros(batch, *outer.slab, model.config.dim) for outer in network.outer_decoders]
    return Recorded(key, network, [RecordedSteps(*each) for each in zip(network.outer_decoders, slabs)])


def _same_by_graphs(config: AxialTransformerConfig, noise: Tensor) -> bool:
    """Return True if a model of fixed random weights chooses the same values by graphs and eagerly."""
    with torch.device("meta"):  # initial weights would be random numbers
        model = AxialTransformer(config)
    model.to_empty(device=noise.device)
    for numbers in model.buffers():
        numbers.zero_()
    randomise(model, torch.Generator().manual_seed(0))
    blank = torch.zeros(len(noise), *config.shape, config.channels, dtype=torch.int64, device=noise.device)
    choose = NoiseChoice(noise=noise)
    return torch.equal(*(decode(model, choose, blank, backend=backend) for backend in (graphs, eager)))


@cache
def failed_self_test(device: torch.device) -> str | None:
    """Return why graphs are not used on a device; None if small models choose by graphs the values of eager decoding.

    Once for each device and process, in float32 and, where the device multiplies it, under autocast to bfloat16. It
    leaves torch's own random generators alone.
    """
    try:
        tried = {
            TRIED: gumbel((8, *TRIED.shape, 1, TRIED.num_values), device=device),
            TRIED_PIXELS: uniform((8, *TRIED_PIXELS.shape, 2), device=device),
        }
        for (config, noise), half in product(tried.items(), {False, multiplies_bfloat16(device)}):
            with torch.autocast(device.type, torch.bfloat16, enabled=half):
                if not _same_by_graphs(config, noise):
                    return f"CUDA graphs choose other values on {device}"
    except Exception as error:  # whatever it is, eager decoding may work
        return f"CUDA graphs fail on {device}: {error!r}"
    return None
