"""Position-sensitive attention (Wang et al. 2020, Axial-DeepLab, equation 4) by the engine, on a CPU."""

from jaxtyping import Float
from torch import Tensor

from axial_transformers.ops.attention_call import AttentionCall
from axial_transformers.ops.engine_attention import differentiable, engine_refuses


def refuses(call: AttentionCall) -> str | None:
    """Return why it does not take a call, or None."""
    if not call.tables:
        return "it computes equation 4 only"
    if call.norms and not call.norms.fold():
        return "torch computes norms that use the batch's statistics or have hooks"
    return engine_refuses(call, min(len(call.tables[0]), call.q.shape[call.axis]))


def run(call: AttentionCall) -> Float[Tensor, "b *a n w"]:
    """Compute a call in float32; any number of derivatives."""
    assert call.tables is not None
    tables = call.tables
    tensors = call.tensors
    added = None
    if call.norms:
        qkv, tables, added = call.norms.folded(tensors[0], tables)
        tensors = (qkv,)
    rows = len(tables[0])
    beyond = max(0, rows // 2 - (call.q.shape[call.axis] - 1))
    inside = tuple(table.float()[beyond : rows - beyond].contiguous() for table in tables)
    out = differentiable(call, inside, tuple(x.float() for x in tensors)).to(call.v.dtype)
    return out if added is None else out + added.view(out.shape[-2:])
