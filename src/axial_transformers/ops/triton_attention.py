"""Attention with masks and biases along short lines on a GPU: kernels in Triton, with the backward pass of a bias.

Off until a GPU has run it: the environment variable AXIAL_TRITON=1, set before the import, lets it compute. With
TRITON_INTERPRET=1 it runs on a CPU, slowly, for tests.
"""

import os
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from axial_transformers.ops import torch_attention
from axial_transformers.ops.attention_call import AttentionCall
from axial_transformers.ops.line_groups import line_bias
from axial_transformers.ops.torch_private import is_differentiated, is_traced, is_transformed

ENABLED = os.environ.get("AXIAL_TRITON") == "1" and find_spec("triton") is not None
DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
MAX_KEYS = 256
"""All keys of a line are in the registers of one program."""
MAX_WIDTH = 64
DTYPES = torch.float32, torch.bfloat16, torch.float16


def refuses(call: AttentionCall) -> str | None:
    """Return why it does not take a call, or None."""
    q = call.q
    if not ENABLED:
        return "no GPU has run it yet: AXIAL_TRITON=1 in the environment turns it on, where triton is installed"
    if q.device.type != DEVICE or q.dtype not in DTYPES:
        return f"it takes float32, bfloat16 and float16 on {DEVICE}"
    if q.dtype == torch.float32 and DEVICE == "cuda" and torch.backends.cuda.matmul.fp32_precision != "tf32":
        return "exact products of float32 do not fit into registers: it takes them where TF32 is allowed"
    if call.tables or call.full or call.dropout:
        return "it takes lines of one grid, without tables and dropout"
    if call.key_mask is None and call.bias is None and not call.window:
        return "without a mask, a bias or a window, torch's kernel is as fast"
    if is_transformed() or torch.compiler.is_exporting() or is_traced():
        return "transforms of torch.func, traces and exported graphs take operations of torch only"
    if q.shape[call.axis] > MAX_KEYS or max(q.shape[-1], call.v.shape[-1]) > MAX_WIDTH:
        return f"it takes lines of at most {MAX_KEYS} positions, and heads of width {MAX_WIDTH}"
    if not q.numel() or not call.v.numel():
        return "there is nothing to compute"
    return None


def run(call: AttentionCall) -> Float[Tensor, "b *a n w"]:
    """Compute a call; any number of derivatives."""
    bias = call.bias
    if bias is not None:
        bias = line_bias(bias, call.others)
    return _forward(*call.operands, call.key_mask, bias, call.axis, call.causal, call.window or 0)


Given = tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, int, bool, int]
"""Queries, keys, values [B, *A, heads, width], key mask [B, *A], bias [#B, #lines, #heads, #L, #L or window], axis,
causal, and the window, 0 for none."""


def _lines(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, axis: int, *options: Any) -> Any:
    """Return the kernels of an attention."""
    from axial_transformers.ops.triton_kernels import Lines  # imports triton

    present = None
    if mask is not None:
        present = mask.movedim(axis, -1).reshape(len(q), -1, q.shape[axis]).contiguous()
    return Lines(_by_line(q, axis), _by_line(k, axis), _by_line(v, axis), present, bias, *options)


def _by_line(x: Float[Tensor, "b *a n w"], axis: int) -> Float[Tensor, "b m l n w"]:
    x = x.movedim(axis, -3)
    x = x.reshape(len(x), -1, *x.shape[-3:])
    return x if x.stride(-1) == 1 else x.contiguous()


def _empty(like: Float[Tensor, "b *a n w"], axis: int) -> Float[Tensor, "b *a n w"]:
    """Return new memory, line after line."""
    return torch.empty_like(like.movedim(axis, -3), memory_format=torch.contiguous_format).movedim(-3, axis)


@torch.library.custom_op("axial_transformers::attend_masked", mutates_args=())
def _forward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, axis: int, causal: bool, window: int
) -> Tensor:
    out = _empty(v, axis)
    with torch.cuda.device_of(q):  # where Triton starts kernels
        _lines(q, k, v, mask, bias, axis, causal, window).write_forward(_by_line(out, axis))
    return out


@torch.library.custom_op("axial_transformers::attend_masked_backward", mutates_args=())
def _backward(  # noqa: PLR0913
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    axis: int,
    causal: bool,
    window: int,
    learned: bool,
) -> list[Tensor]:
    """Return the gradients of q, k, v and, if it is learned, of the bias."""
    lines = _lines(q, k, v, mask, bias, axis, causal, window)
    grads = [_empty(x, axis) for x in (q, k, v)]
    grad = _by_line(grad, axis)
    with torch.cuda.device_of(q):
        lines.write_backward(grad, *(_by_line(x, axis) for x in grads))
        return [*grads, lines.bias_gradient(grad)] if learned else grads


@_forward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, axis: int, *options: Any) -> Tensor:
    return _empty(v, axis)


@_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Any, axis: int, *options: Any) -> list[Tensor]:
    learned = [torch.empty_like(bias, memory_format=torch.contiguous_format)] if options[-1] else []
    return [*(_empty(x, axis) for x in (q, k, v)), *learned]


def _keep(ctx: Any, inputs: Given, output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:5])
    ctx.options = inputs[5:]


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    *qkv, mask, bias = ctx.saved_tensors
    needed = ctx.needs_input_grad
    learned = [] if bias is None else [bias]
    if not torch.compiler.is_compiling() and is_differentiated(grad):
        tensors = [*qkv, *learned]
        grads = torch_attention.gradients_by(
            partial(_formula, mask, *ctx.options), tensors, [*needed[:3], needed[4]], grad
        )
    else:
        grads = _backward(grad, *qkv, mask, bias, *ctx.options, needed[4])
    d_q, d_k, d_v, *d_bias = grads
    return d_q, d_k, d_v, None, d_bias[0] if d_bias else None, None, None, None


_forward.register_autograd(_gradients, setup_context=_keep)


def _formula(
    mask: Tensor | None, axis: int, causal: bool, window: int, q: Tensor, k: Tensor, v: Tensor, *bias: Tensor
) -> Tensor:
    """Return what `_forward` computes, by operations of torch."""
    call = AttentionCall(q, k, v, axis, causal, mask, window=window or None)
    if bias:
        (by_line,) = bias
        others = call.others if by_line.shape[1] > 1 else [1] * len(call.others)
        call = call._replace(bias=by_line.reshape(len(by_line), *others, *by_line.shape[2:]))
    return torch_attention.run(call)
