"""A model of values from `lowest` on is the model of values from 0 on, moved: callers see values of the data."""

from dataclasses import replace

import pytest
import torch

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
