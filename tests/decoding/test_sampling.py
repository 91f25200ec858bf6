"""Samples have the model's distribution, restricted by temperature, top-k and top-p, and repeat with their seed."""

from collections.abc import Callable
from functools import partial
from itertools import product
from math import prod

import numpy as np
import pytest
import torch
from torch import Tensor

from axial_transformers.decoding import NoiseChoice, Sampler, decode, gumbel, sampling, uniform
from axial_transformers.decoding.sampling import complete, sample
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.models import AxialTransformer
from tests.small_models import random_model, random_values, small_config, small_model

CHI_SQUARE_1_IN_1000 = {4: 18.5, 8: 26.1, 15: 37.7, 26: 54.1}
"""Quantiles by degrees of freedom."""


def chi_square(values: Tensor, probabilities: Tensor) -> float:
    expected = len(values) * probabilities
    return ((values.bincount(minlength=len(probabilities)) - expected) ** 2 / expected).sum().item()


Noise = Callable[[int, int], Tensor]
"""The numbers of samples and of values -> noise."""


def samples_of(noise: Noise, logits: Tensor, count: int, **options) -> Tensor:
    """Many samples from one distribution [V]."""
    return Sampler(**options)(logits.expand(count, -1), noise(count, len(logits)))


with_any_noise = pytest.mark.parametrize(
    "noise",
    [lambda count, values: gumbel((count, values)), lambda count, values: uniform((count,))],
    ids=["gumbel", "uniform"],
)
LOGITS = torch.tensor([0.5, -1.0, 2.0, 1.0, 0.0])


@with_any_noise
@pytest.mark.parametrize(
    ("options", "left"),
    [
        *(({"temperature": temperature}, left) for temperature, left in ((0.0, 1), (0.5, 5), (1.0, 5), (2.0, 5))),
        ({"temperature": 0.0, "top_p": 0.5}, 1),
        *(({"top_k": k}, min(k, 5)) for k in (1, 2, 3, 9)),
        *(({"top_p": p}, left) for p, left in ((1e-6, 1), (0.5, 1), (0.6, 2), (0.85, 3), (0.9, 4), (0.98, 5))),
        ({"top_p": 0.9, "temperature": 0.25}, 1),
    ],
    ids=str,
)
def test_restrictions_leave_the_most_likely_values_and_their_proportions(noise, options, left):
    kept = LOGITS.argsort(descending=True)[:left]
    values = samples_of(noise, LOGITS, 5000, **options)
    assert values.unique().tolist() == sorted(kept.tolist())
    if left > 1:
        probabilities = (LOGITS[kept] / options.get("temperature", 1.0)).softmax(0)
        ranks = (values[:, None] == kept).int().argmax(1)
        assert chi_square(ranks, probabilities) < CHI_SQUARE_1_IN_1000[4]


@with_any_noise
def test_tied_values_are_kept_together(noise):
    for options in ({"top_p": 0.5}, {"top_p": 0.2}, {"top_k": 1}):
        assert set(samples_of(noise, torch.zeros(4), 500, **options).tolist()) == {0, 1, 2, 3}
        assert set(samples_of(noise, torch.tensor([1.0, 9.0, -5.0, 9.0]), 500, **options).tolist()) == {1, 3}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("p", "left"), [(0.5, 1), (0.75, 2), (0.875, 3)])
def test_top_p_leaves_nothing_more_where_it_is_reached_exactly(p, left, compiled):
    """Probabilities that float32 holds: 16, 8, 4, 3 and 1 of 32."""
    model = small_model((2, 3)).float()
    with torch.no_grad():
        model.head[-1].weight.zero_()
        model.head[-1].bias.copy_(torch.tensor([16.0, 8.0, 4.0, 3.0, 1.0]).log())
    sampled = sample(model, 20, top_p=p, seed=0, compile=compiled)
    assert sampled.unique().tolist() == [*range(left)]


def test_top_p_of_one_excludes_nothing():
    """In float32 the probabilities of many values add up to more than 1 before the last ones are reached."""
    logits = 4 * torch.randn(1, 256, generator=torch.Generator().manual_seed(0))
    for value in range(256):
        wanted = torch.full((1, 256), -1e9)
        wanted[0, value] = 0
        assert Sampler(top_p=1.0)(logits, wanted).item() == value


@pytest.mark.parametrize(
    ("shape", "layout", "values", "known"),
    [((1, 3), "channels", 3, []), ((2, 1, 2), "frames", 2, []), ((2, 2), "channels", 3, [2, 1])],
    ids=str,
)
def test_samples_come_with_the_probabilities_of_the_model_given_what_is_known(shape, layout, values, known):
    model, missing = small_model(shape, 1, layout, num_values=values), prod(shape) - len(known)
    everything = torch.tensor([[*known, *rest] for rest in product(range(values), repeat=missing)]).view(-1, *shape, 1)
    probabilities = torch.exp2(-bits_per_dim(model, everything) * prod(shape))
    given = torch.tensor([*known, *[-1] * missing]).expand(4000, -1).view(4000, *shape, 1)
    choose = NoiseChoice(noise=gumbel((4000, *shape, 1, values)), known=given)
    sampled = decode(model, choose, given.clamp(min=0)).flatten(1)
    assert torch.equal(sampled[:, : len(known)], given.flatten(1)[:, : len(known)])
    number = (sampled[:, len(known) :] * values ** torch.arange(missing - 1, -1, -1)).sum(1)
    assert chi_square(number, probabilities / probabilities.sum()) < CHI_SQUARE_1_IN_1000[len(everything) - 1]
    assert known or probabilities.sum() == pytest.approx(1)


def test_one_label_counts_for_all_examples():
    model, label = small_model((2, 3), num_classes=3), torch.full((4,), 2)
    sampled = sample(model, 4, seed=0, label=2)
    assert torch.equal(sampled, sample(model, 4, seed=0, label=label))
    assert torch.equal(model(sampled, 2), model(sampled, label))
    assert torch.equal(*(complete(model, sampled, rows=1, seed=0, label=each) for each in (2, label)))


def test_a_seed_repeats_and_without_one_torch_chooses():
    model, chosen = small_model((3, 4), 2), []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        chosen.append([sample(model, 5, seed=seed), sample(model, 5), sample(model, 5)])
    for first, again, other in zip(*chosen):
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
    assert not torch.equal(chosen[0][1], chosen[0][2])


def in_parts_of(examples: int, model: AxialTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MAX_NUMBERS", examples * sampling.numbers_per_example(model.config).noise)


@pytest.mark.parametrize("together", [1, 2, 3, 100])
def test_samples_and_completions_depend_neither_on_their_number_nor_on_how_many_are_sampled_together(
    monkeypatch, together
):
    model = small_model((2, 3), 2, num_classes=2)
    label, known, noise = torch.tensor([0, 1, 2, 1, 0, 2, 1]), random_values(model, 3), gumbel((7, 2, 3, 2, 5))
    expected = sample(model, noise=noise, label=label)
    completed = complete(model, known, channels=1, count=2, noise=noise[:6])
    in_parts_of(together, model, monkeypatch)
    for count in (1, 3, 7):
        assert torch.equal(sample(model, seed=0, label=label[:count]), expected[:count])
    assert torch.equal(sample(model, seed=0, label=label[5:], first=5), expected[5:])
    for inputs in (1, 3):
        assert torch.equal(complete(model, known[:inputs], channels=1, count=2, seed=0), completed[: 2 * inputs])
    assert torch.equal(complete(model, known[1:], channels=1, count=2, seed=0, first=2), completed[2:])


def test_parts_of_a_batch_are_one_loop_that_begins_after_all_of_them_are_checked(monkeypatch):
    model, loops = small_model((3, 4), 2, num_classes=2), []
    in_parts_of(2, model, monkeypatch)

    def progress(items):
        loops.append([*items])
        return iter(loops[-1])

    known = random_values(model, 3)
    known[2, 0, 0, 0] = 5
    with pytest.raises(ValueError, match="found 3"):
        sample(model, label=torch.tensor([0, 0, 3]), progress=progress)
    with pytest.raises(ValueError, match=r"found 0\.\.5"):
        complete(model, known, channels=1, progress=progress)
    assert loops == []
    sample(model, 5, progress=progress)
    assert [len(loop) for loop in loops] == [3 * 3 * 2]  # parts, rows, channels


def test_noise_takes_bounded_memory(monkeypatch):
    """8,192 numbers are the noise of two of the six examples."""
    model = small_model((4, 4), num_values=256)
    sizes = []

    def recorded(shape, *of):
        sizes.append(prod(shape))
        return gumbel(shape, *of)

    monkeypatch.setattr(sampling, "gumbel", recorded)
    monkeypatch.setattr(sampling, "MAX_NUMBERS", 1 << 13)
    assert len(sample(model, 6)) == 6
    assert sizes == [2 * 4 * 4 * 256] * 3


def test_caches_take_bounded_memory_but_of_too_few_examples_at_a_time(monkeypatch):
    monkeypatch.setattr(sampling, "MAX_NUMBERS", 1 << 20)
    narrow, wide = (small_config((16, 16), num_values=2, dim=dim) for dim in (64, 512))
    assert 16 < sampling.max_examples_at_once(narrow) < 32
    assert sampling.max_examples_at_once(narrow) * sampling.numbers_per_example(narrow).state <= 1 << 20
    assert sampling.max_examples_at_once(wide) == 16


def test_uniform_noise_chooses_by_the_definition():
    logits = 3 * torch.randn(50, 300, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    noise = torch.cat([uniform((48,)), torch.tensor([5e-324, 1 - 2**-53], dtype=torch.float64)])
    for temperature in (0.3, 1.0):
        found = Sampler(temperature=temperature)(logits, noise)
        probabilities = (logits / temperature).softmax(-1)
        for value, p, u in zip(found.tolist(), probabilities, noise):
            assert p[:value].sum() <= u + 1e-12
            assert p[: value + 1].sum() >= u - 1e-12
    allowed = Sampler(top_k=2)(logits, noise)  # the largest number takes the last allowed value
    assert allowed[-1] == logits[-1].topk(2).indices.max()


def test_the_noise_of_many_values_is_small():
    few, many = (small_config((3, 4), 2, num_values=values) for values in (256, 257))
    assert sampling.noise_for(few, 3, 1, 2).shape == (3, 3, 4, 2, 256)
    assert torch.equal(sampling.noise_for(many, 3, 1, 2), uniform((3, 3, 4, 2), 1, 2))
    assert sampling.numbers_per_example(many).noise == 2 * 3 * 4 * 2
    model = small_model((3, 4), num_values=257)
    assert torch.equal(sample(model, 2, seed=1), sample(model, noise=uniform((2, 3, 4, 1), 1)))


def test_known_channels_stay_what_they_are():
    model = small_model((2, 3), 3, known_channels=2)
    known = random_values(model, 4)
    for dtype in (torch.uint8, torch.int16, torch.int64):
        found = sample(model, known=known.to(dtype), seed=0)
        assert torch.equal(found[..., :2], known[..., :2].to(torch.uint8))
    with pytest.raises(ValueError, match="known="):
        sample(model, 4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "missing"),
        ({"count": 2, "label": torch.zeros(3, dtype=torch.int64)}, r"\[2, 3\]"),
        ({"count": 4, "label": 5}, "label"),
        ({"count": -1}, "count"),
        ({"count": 1, "temperature": float("nan")}, "temperature"),
        ({"count": 1, "top_k": 0}, "top_k"),
        ({"count": 1, "top_p": 1.1}, "top_p"),
        ({"noise": torch.zeros(1, 2, 3, 1, 4)}, r"noise .*\[1, 2, 3, 1, 5\]"),
        ({"known": torch.zeros(1, 2, 3, 2, dtype=torch.int64)}, r"not \[1, 2, 3, 2\]"),
        ({"count": 1, "seed": 2**64}, "seed"),
        ({"count": 1, "first": -1}, "first"),
    ],
)
def test_what_cannot_be_sampled_is_refused(options, words):
    with pytest.raises(ValueError, match=words) as error:
        sample(small_model((2, 3), num_classes=3), **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("noise", [0.0, 1.0, torch.nan])
def test_noise_that_is_not_between_0_and_1_is_refused_where_it_is_uniform(noise):
    model = small_model((2, 3), num_values=300)
    with pytest.raises(ValueError, match=f"{noise:g}|NaN"):
        sample(model, noise=torch.full((1, 2, 3, 1), noise))
    with pytest.raises(ValueError, match=r"noise .*\[1, 2, 3, 1\]"):
        sample(model, noise=torch.zeros(1, 2, 3, 1, 300))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("what", ["head.1.weight", "noise", "cond"])
def test_what_is_not_a_number_is_refused(what, compiled):
    model = random_model(small_config((2, 3)), torch.float32)
    noise, cond = torch.zeros(1, 2, 3, 1, 5), torch.zeros(1, 2, 3, 8)
    with torch.no_grad():
        {"noise": noise, "cond": cond}.get(what, model.head[1].weight)[0, ..., 0] = torch.nan
    for call in (sample, partial(complete, known=random_values(model, 1), rows=1)):
        with pytest.raises(ValueError, match=f"{what} .*NaN"):
            call(model, noise=noise, cond=cond, compile=compiled)


def test_known_floats_are_refused():
    model = small_model((3, 4))
    with pytest.raises(ValueError, match="integers"):
        complete(model, random_values(model, 2) / 16, rows=1)


def test_a_count_is_a_whole_number():
    model = random_model(small_config((2, 3)))
    with pytest.raises(TypeError, match="integer"):
        sample(model, 2.5)
    assert len(sample(model, np.int64(2))) == 2
