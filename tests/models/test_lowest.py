"""A model of values from `lowest` on, or of `levels`, is that of values from 0 on: callers see values of the data."""

from dataclasses import replace

import pytest
import torch

from axial_transformers import compress, decompress
from axial_transformers.decoding import NoiseChoice, decode, decode_naively
from axial_transformers.decoding.sampling import complete, noise_for, sample
from axial_transformers.likelihood.bits import bits_map, bits_per_dim, random_slice_loss
from axial_transformers.models import AxialTransformer
from tests.small_models import CENTRED, random_model, random_values, small_config, small_model


def pair(dtype: torch.dtype = torch.float64, lowest: int = -3, **fields) -> tuple[AxialTransformer, AxialTransformer]:
    config = small_config((2, 3), 2, "columns", **fields)
    return random_model(config, dtype), random_model(replace(config, lowest=lowest), dtype)


@pytest.mark.parametrize("fields", [{}, CENTRED, {"num_values": 300}])
def test_moved_values_have_the_same_likelihood(fields):
    plain, moved = pair(**fields)
    x = random_values(plain, 3)
    channel = torch.zeros(3, dtype=torch.int64)
    assert torch.equal(moved(x - 3), plain(x))
    assert torch.equal(bits_map(moved, x - 3), bits_map(plain, x))
    assert torch.equal(random_slice_loss(moved, x - 3, channel=channel), random_slice_loss(plain, x, channel=channel))
    in_float32 = [model.float() for model in (plain, moved)]
    assert torch.equal(bits_map(in_float32[1], x - 3), bits_map(in_float32[0], x))


@pytest.mark.parametrize("fields", [{}, CENTRED])
@pytest.mark.parametrize("compile", [False, True])
def test_samples_and_completions_hold_values_of_the_data(fields, compile):
    plain, moved = pair(torch.float32, **fields)
    noise, x = noise_for(plain.config, 4, seed=0), random_values(plain, 4)
    sampled = [sample(model, noise=noise, compile=compile) for model in (plain, moved)]
    assert [each.dtype for each in sampled] == [torch.uint8, torch.int64]
    assert torch.equal(sampled[1], sampled[0].long() - 3)
    filled = complete(moved, (x - 3).to(torch.int8), rows=1, noise=noise, compile=compile)
    assert torch.equal(filled, complete(plain, x, rows=1, noise=noise, compile=compile).long() - 3)
    assert torch.equal(filled[:, :1], x[:, :1] - 3)
    naive = decode_naively(moved.double(), NoiseChoice(noise=noise.double()), x - 3)
    assert torch.equal(naive, decode(moved, NoiseChoice(noise=noise.double()), x - 3))
    assert torch.equal(naive, sampled[1])


@pytest.mark.parametrize(
    ("lowest", "dtype"), [(-3, torch.int64), (0, torch.uint8), (251, torch.uint8), (252, torch.int64)]
)
def test_samples_are_bytes_where_all_values_are(lowest, dtype):
    _, moved = pair(lowest=lowest)
    found = sample(moved, 2)
    assert found.dtype == dtype
    assert lowest <= int(found.min()) <= int(found.max()) < lowest + 5


def test_values_of_others_are_refused():
    model = small_model((2, 3), lowest=-1024, num_values=4096)
    with pytest.raises(ValueError, match=r"-1024.*-1025"):
        bits_per_dim(model, torch.tensor([-1025, 3071, 0, 0, 0, 0]).view(1, 2, 3, 1))


LEVELS = (-70, -3, 0, 41, 40_000)
FEW = {"lowest": -70, "levels": LEVELS}


@pytest.mark.parametrize("fields", [{}, CENTRED])
@pytest.mark.parametrize("compile", [False, True])
def test_a_model_of_few_values_codes_their_ranks(fields, compile):
    config = small_config((2, 3), 2, "columns", **fields)
    plain, few = (random_model(each, torch.float32) for each in (config, replace(config, **FEW)))
    ranks = random_values(plain, 3)
    x = torch.tensor(LEVELS)[ranks]
    assert torch.equal(few(x), plain(ranks))
    assert torch.equal(bits_map(few, x), bits_map(plain, ranks))
    noise = noise_for(config, 4, seed=0)
    sampled = [sample(model, noise=noise, compile=compile).long() for model in (plain, few)]
    assert torch.equal(sampled[1], torch.tensor(LEVELS)[sampled[0]])
    known = torch.tensor(LEVELS)[sampled[0]]
    filled = [complete(model, values, rows=1, noise=noise) for model, values in ((plain, sampled[0]), (few, known))]
    assert torch.equal(filled[1], torch.tensor(LEVELS)[filled[0].long()])
    assert torch.equal(decompress(few, compress(few, x)), x)


@pytest.mark.parametrize("value", [-71, -4, 1, 39_999, 40_001])
def test_values_between_the_levels_are_refused(value):
    model = small_model((2, 3), 2, "columns", **FEW)
    x = torch.full((1, 2, 3, 2), 41)
    x[0, 1, 1, 0] = value
    with pytest.raises(ValueError, match=str(value)):
        bits_per_dim(model, x)


@pytest.mark.parametrize(
    "fields",
    [{"levels": LEVELS[:4]}, {"levels": (-70, 0, -3, 41, 42)}, {"lowest": 0}, {"levels": (-70, -3, -3, 41, 42)}],
)
def test_levels_are_ascending_and_as_many_as_values(fields):
    with pytest.raises(ValueError, match=r"model\.levels"):
        small_config((2, 3), **FEW | fields)


def test_unknown_positions_may_hold_any_number():
    model = random_model(small_config((3, 4), 1, "channels", **FEW), torch.float32)
    x = torch.full((1, 3, 4, 1), 41)
    x[:, 1:] = 7
    filled = complete(model, x, rows=1, seed=0)
    assert torch.equal(filled, complete(model, torch.where(x == 7, 0, x), rows=1, seed=0))
    assert set(filled.unique().tolist()) <= {*LEVELS}
