"""Choose the backend that decodes: eager, the exact network, or CUDA graphs.

To see why decoding is eager, set the logger `axial_transformers.decoding.backend_choice` to DEBUG.
"""

import logging

from axial_transformers.decoding.backend import Backend, eager
from axial_transformers.decoding.choices import Choose, NoiseChoice
from axial_transformers.decoding.exact_backend import sampling_backend
from axial_transformers.decoding.graph_backend import MAX_ROW, failed_self_test, graphs
from axial_transformers.exact.network import exact_network
from axial_transformers.layers.lines import LineAttention
from axial_transformers.models import AxialTransformer
from axial_transformers.ops.torch_private import has_hooks

LOG = logging.getLogger(__name__)


def choose_backend(model: AxialTransformer, choose: Choose, batch: int, compile: bool | None = None) -> Backend:
    """Return the backend for `batch` examples.

    | compile | on a CPU | on CUDA |
    |---|---|---|
    | False | eager | eager |
    | True | the exact network, or ValueError | CUDA graphs, or ValueError |
    | None | the exact network where possible, or eager | CUDA graphs where possible, or eager |

    Both need noise (a choice made of tensors).

    - The exact network takes float32 models, and needs the compiled engine.
    - Graphs need an inner decoder that can be recorded, and a device that passes `failed_self_test`.

    Args:
        batch: number of examples; without any, decoding is eager.

    Raises:
        ValueError: `compile` is True, and the model or `choose` cannot be compiled.
    """
    if compile is False or not batch:
        return eager(model, choose)
    found = _compiled(model, choose, batch)
    if isinstance(found, Backend):
        return found
    if compile:
        raise ValueError(f"compile=True, but {found}")
    LOG.debug("decoding is eager: %s", found)
    return eager(model, choose)


def _compiled(model: AxialTransformer, choose: Choose, batch: int) -> Backend | str:
    """Return the exact network or CUDA graphs, or why neither can be taken."""
    if not isinstance(choose, NoiseChoice):
        return "the choice of values is a Python function"
    if model.device.type == "cuda":
        return _obstacle_of_graphs(model) or failed_self_test(model.device) or graphs(model, choose, batch)
    network = exact_network(model)
    return network if isinstance(network, str) else sampling_backend(network, choose)


def _obstacle_of_graphs(model: AxialTransformer) -> str | None:
    for name, part in model.named_modules():
        if has_hooks(part):
            return f"{name or 'the model'} has hooks, which no CUDA graph calls"
        if isinstance(part, LineAttention) and type(part) is not LineAttention:
            return f"no CUDA graph is recorded of {type(part).__name__}"
    length = model.layout.shape[-1]
    layers = model.config.inner_layers
    if length * layers > MAX_ROW:
        return f"a row of {length} positions x {layers} layers is too long for a CUDA graph (at most {MAX_ROW} steps)"
    return None
