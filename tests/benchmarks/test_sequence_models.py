"""The other rows of table 1 have exactly the receptive fields of their papers, and are decoded from caches."""

import pytest
import torch

from axial_transformers.decoding import decode, decode_naively
from axial_transformers.layers.initialisation import randomise
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.ops.axial_attention import attend_step
from experiments.dependencies import check, influence
from tests import benchmark_commands  # noqa: F401  # scripts are found

from sequence_attention import (  # isort: skip
    BlockAttention,
    LocalAttention,
    SequenceAttention,
    StridedAttention,
)
from sequence_models import (  # isort: skip
    BlockTransformer,
    BlockTransformerConfig,
    ImageTransformer,
    ImageTransformerConfig,
    SparseTransformer,
    SparseTransformerConfig,
)

SIZES = {"num_values": 5, "dim": 16, "heads": 4, "mlp_ratio": 1.0}


def models(shape: tuple[int, ...], channels: int, layers: int) -> list[AxialTransformer]:
    size = {"shape": shape, "channels": channels, "inner_layers": layers, **SIZES}
    blocks = ((1,) * len(shape), (*shape[:-1], shape[-1] * channels))
    built = [
        AxialTransformer(AxialTransformerConfig(layout="raster", **size)),
        ImageTransformer(ImageTransformerConfig(block=4, memory=3, **size)),
        SparseTransformer(SparseTransformerConfig(**size)),
        BlockTransformer(BlockTransformerConfig(blocks=blocks[-layers:], **size)),
    ]
    for model in built:
        randomise(model, torch.Generator().manual_seed(1))
    return [model.double() for model in built]


def reached(model: AxialTransformer) -> torch.Tensor:
    """[p, q]: whether position p can depend on q, from the patterns of all layers; inputs are shifted by one."""
    count = len(model.order)
    reach = torch.eye(count, dtype=torch.bool)
    for block in model.inner_decoder.blocks:
        layer = torch.zeros(count, count, dtype=torch.bool)
        for i in range(count):
            attention = block.attention.attention
            groups = attention.attended(i) if isinstance(attention, SequenceAttention) else [slice(i + 1)]
            for positions in groups:
                layer[i, positions] = True
        reach = (layer.float() @ reach.float()) > 0
    return torch.cat([reach[:, 1:], torch.zeros(count, 1, dtype=torch.bool)], dim=1)


@pytest.mark.parametrize(("shape", "channels"), [((3, 5), 1), ((2, 4), 3), ((1, 7), 1), ((2, 3, 2), 1)])
def test_logits_depend_on_exactly_the_positions_that_the_layers_reach(shape, channels):
    for layers in (1, 2):
        for model in models(shape, channels, layers):
            change = influence(model, torch.randint(0, 5, (1, *shape, channels)))
            expected = reached(model)
            assert torch.equal(change > 1e-9, expected), model.name
            assert change[~expected].max() <= 1e-12, model.name


def test_transformer_and_strided_sparse_transformer_reach_the_whole_past_and_the_local_ones_do_not():
    local = BlockTransformerConfig(shape=(4, 6), blocks=((2, 3),), inner_layers=2, **SIZES)
    several = [*models((4, 6), 1, 2)[:3], BlockTransformer(local).double()]
    randomise(several[-1])
    x = torch.randint(0, 5, (1, 4, 6, 1))
    assert [check(influence(model, x)).holes > 0 for model in several] == [False, True, False, True]


@pytest.mark.parametrize(
    "attention",
    [
        LocalAttention(8, 2, block=5, memory=3),
        LocalAttention(8, 2, block=4, memory=8),
        StridedAttention(8, 2, stride=5),
        BlockAttention(8, 2, grid=(3, 2, 4), block=(1, 2, 2)),
        BlockAttention(8, 2, grid=(4, 6), block=(2, 3)),
    ],
    ids=lambda attention: type(attention).__name__,
)
def test_all_positions_at_once_equal_one_at_a_time_over_its_attended_positions(attention):
    q, k, v = torch.randn(3, 2, 2, 24, 4, dtype=torch.float64)
    out = attention.attend(q, k, v)
    for i in range(24):
        groups = attention.attended(i)
        shares = zip(groups, *(t.chunk(len(groups), dim=1) for t in (q, k, v)))
        expected = [attend_step(q[:, :, i], k[:, :, at], v[:, :, at]) for at, q, k, v in shares]
        assert torch.allclose(out[:, :, i], torch.cat(expected, dim=1), atol=1e-12)


def test_cached_decoding_equals_the_naive_one():
    shape, channels = (2, 3), 2
    for model in models(shape, channels, 2):
        noise = torch.rand(2, *shape, channels, 5, dtype=torch.float64) * 3
        x = torch.zeros(2, *shape, channels, dtype=torch.int64)

        def choose(logits, position, noise=noise):
            return (logits + noise[(slice(None), *position)]).argmax(-1)

        assert torch.equal(decode(model, choose, x), decode_naively(model, choose, x)), model.name


def test_a_baseline_is_saved_and_read_back(tmp_path):
    model = BlockTransformer(BlockTransformerConfig(shape=(3, 4), blocks=((3, 2), (1, 4)), **SIZES))
    randomise(model)
    model.save_pretrained(tmp_path / "model")
    again = BlockTransformer.from_pretrained(tmp_path / "model")
    x = torch.randint(0, 5, (2, 3, 4, 1))
    assert torch.equal(model.eval()(x), again(x))
    with pytest.raises(ValueError, match="sparse_transformer"):
        SparseTransformer.from_pretrained(tmp_path / "model")


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (SparseTransformer, {"rotary": 9.0}, "rotary"),
        (SparseTransformer, {"heads": 1}, "even"),
        (BlockTransformer, {"blocks": ((2, 5),)}, "do not tile"),
        (BlockTransformer, {}, "at least one shape"),
    ],
)
def test_what_does_not_fit_is_refused(build, options, message):
    with pytest.raises(ValueError, match=message):
        build(build.config_class(**{"shape": (3, 5), **SIZES} | options))
