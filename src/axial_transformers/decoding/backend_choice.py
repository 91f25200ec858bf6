"""Choose the backend that decodes: eager, the engine, or CUDA graphs.

To see why decoding is eager, set the logger `axial_transformers.decoding.backend_choice` to DEBUG.
"""

import logging

import torch

from axial_transformers.decoding import exact_backend, exact_network
from axial_transformers.decoding.backend import Backend, eager
from axial_transformers.decoding.choices import Choose, KnownFirst, noise_of
from axial_transformers.decoding.graph_backend import MAX_ROW, failed_self_test, graphs
from axial_transformers.engine import library
from axial_transformers.messages import Message
from axial_transformers.models import AxialTransformer
from axial_transformers.ops.torch_private import has_hooks

LOG = logging.getLogger(__name__)


def choose_backend(
    model: AxialTransformer, choose: Choose | KnownFirst, batch: int, compile: bool | None = None
) -> Backend:
    """Return the backend for `batch` examples.

    | compile | on a CPU | on CUDA |
    |---|---|---|
    | False | eager | eager |
    | True | the engine, or ValueError | CUDA graphs, or ValueError |
    | None | the engine where possible, or eager | CUDA graphs where possible, or eager |

    Both need noise (a choice made of tensors).

    - The engine must be compiled, and takes float32 models.
    - Graphs need an inner decoder that can be recorded, and a device that passes `failed_self_test`.

    Args:
        batch: number of examples.

    Raises:
        ValueError: `compile` is True, and the model or `choose` cannot be compiled.
    """
    if compile is False:
        return eager(model, choose)
    device = model.device
    obstacle = _obstacle(model, choose, device)
    if compile and obstacle:
        raise ValueError(Message("{compile=True}, but {}", obstacle))
    if obstacle or not batch:
        LOG.debug("decoding is eager: %s", obstacle or "there are no examples")
        return eager(model, choose)
    if device.type == "cuda":
        return graphs(model, choose, batch)
    try:
        return exact_backend.compiled(model, choose, batch)
    except exact_network.NotExactError as error:
        if compile:
            raise ValueError(Message("{compile=True}, but {}", error)) from error
        return eager(model, choose)


def _obstacle(model: AxialTransformer, choose: Choose | KnownFirst, device: torch.device) -> str | None:
    noise = noise_of(choose)
    if noise is None:
        return "the choice of values is a Python function"
    if noise.device != device:
        return f"the noise is on {noise.device}, the model on {device}"
    if device.type == "cuda":
        return _obstacle_of_graphs(model) or failed_self_test(device)
    if device.type != "cpu":
        return f"on {device.type} nothing is compiled"
    if torch.is_autocast_enabled("cpu"):
        return "on CPU nothing is compiled in bfloat16 or under autocast"
    dtypes = {parameter.dtype for parameter in model.parameters()}
    if noise.ndim > len(model.config.shape) + 2:  # Gumbel noise
        dtypes.add(noise.dtype)
    if dtypes != {torch.float32}:
        return f"model and noise must be float32 on CPU, not {' and '.join(map(str, dtypes))}"
    return None if library() else "the engine is not compiled"


def _obstacle_of_graphs(model: AxialTransformer) -> str | None:
    from axial_transformers.models.baselines.sequence_attention import BlockAttention

    if (hooked := next((name for name, part in model.named_modules() if has_hooks(part)), None)) is not None:
        return f"{hooked or 'the model'} has hooks, which no CUDA graph calls"
    if any(isinstance(part, BlockAttention) for part in model.modules()):
        return "no CUDA graph is recorded of BlockAttention"
    length, layers = model.layout.shape[-1], model.config.inner_layers
    if length * layers > MAX_ROW:
        return f"a row of {length} positions x {layers} layers is too long for a CUDA graph (at most {MAX_ROW} steps)"
    return None
