"""Probabilities to integers: a grid that two paths agree on, and a coder that takes it as it is."""

import constriction
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from axial_transformers.compression import DamagedError, coder
from axial_transformers.compression.frequencies import PRECISION, frequencies, intervals


def logits_of_two_paths(count: int, values: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same products summed in two orders, [count, V] each in float64, and values drawn from them [count]."""
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(count, 64, generator=generator, dtype=torch.float64)
    w = torch.randn(64, values, generator=generator, dtype=torch.float64) / 8
    forward, backward = torch.zeros(count, values, dtype=torch.float64), torch.zeros(count, values, dtype=torch.float64)
    for k in range(64):
        forward += h[:, k, None] * w[k]
        backward += h[:, 63 - k, None] * w[63 - k]
    drawn = torch.multinomial(forward.softmax(-1), 1, generator=generator).squeeze(-1)
    return forward, backward, drawn


@pytest.mark.parametrize("values", [2, 17, 256, 1000])
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 1e4])
def test_frequencies_are_positive_and_sum_to_the_grid(values, scale):
    logits = torch.randn(50, values, dtype=torch.float64) * scale
    found = frequencies(logits)
    assert found.min() >= 1
    assert (found.sum(-1) == 2**PRECISION - 2).all()


def test_intervals_are_those_of_the_frequencies():
    logits = torch.randn(200, 17, dtype=torch.float64) * 3
    values = torch.randint(0, 17, (200,))
    lower, frequency, _ = intervals(logits, values)
    table = frequencies(logits)
    assert torch.equal(frequency, table.gather(-1, values[:, None])[:, 0])
    assert torch.equal(lower, 1 + torch.where(torch.arange(17) < values[:, None], table, 0).sum(-1))


def test_rounding_to_the_grid_costs_next_to_nothing():
    logits, _, values = logits_of_two_paths(5000, 256)
    ideal = -logits.log_softmax(-1).gather(-1, values[:, None]).mean() / np.log(2)
    coded = (PRECISION - intervals(logits, values).frequency.double().log2()).mean()
    assert coded - ideal < 1e-4


@pytest.mark.parametrize("precision", [40, 44])
def test_two_paths_disagree_on_a_fine_grid_without_escapes(precision):
    """So the agreement on the grid of 24 bits is no accident of equal logits: it is the guard that holds."""
    one, other, values = logits_of_two_paths(20000, 32)
    assert not torch.equal(one, other)
    a, b = intervals(one, values, precision), intervals(other, values, precision)
    assert ((a.lower != b.lower) | (a.frequency != b.frequency)).any()


@pytest.mark.parametrize("precision", [PRECISION, 32])
def test_two_paths_agree_on_every_value_that_is_not_ambiguous(precision):
    for seed in range(3):
        one, other, values = logits_of_two_paths(5000, 256, seed)
        a, b = intervals(one, values, precision), intervals(other, values, precision)
        differ = (a.lower != b.lower) | (a.frequency != b.frequency)
        assert not (differ & ~a.ambiguous).any()


def test_values_on_a_rounding_boundary_are_ambiguous():
    """P(0) is put halfway between two steps; a path that differs by less than the error bound rounds the other way."""
    steps = 2**PRECISION - 2 - 2
    p = torch.tensor((steps // 2 + 0.5) / steps, dtype=torch.float64)
    logits = torch.stack([p.log(), (-p).log1p()])
    either = [intervals(logits + torch.tensor([e, 0.0]), torch.tensor(0)) for e in (-5e-13, 5e-13)]
    assert either[0].frequency != either[1].frequency
    assert either[0].ambiguous
    assert either[1].ambiguous


def test_few_values_are_ambiguous():
    logits, _, values = logits_of_two_paths(5000, 256)
    assert intervals(logits, values).ambiguous.double().mean() < 1e-3


def test_logits_that_are_no_distribution_are_refused():
    with pytest.raises(ValueError, match="not finite"):
        frequencies(torch.tensor([0.0, torch.nan], dtype=torch.float64))


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 300), st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float64]), st.integers(1, 2**30))
def test_constriction_takes_multiples_of_the_grid_unchanged(values, seed, dtype, before):
    """The coder's number after one symbol is (before // f) 2^24 + c + before % f, with exactly our c and f."""
    logits = torch.randn(values, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 4
    table = np.zeros(values + 2, dtype)
    table[1:-1] = frequencies(logits).numpy() - 1
    symbol = seed % values
    lower, frequency, _ = (int(x) for x in intervals(logits, torch.tensor(symbol)))
    ans = constriction.stream.stack.AnsCoder(np.array([before], np.uint32))
    ans.encode_reverse(
        np.array([symbol + 1], np.int32), constriction.stream.model.Categorical(perfect=False), table[None]
    )
    after = sum(int(word) << 32 * i for i, word in enumerate(ans.get_compressed()))
    assert after == (before // frequency << PRECISION) + lower + before % frequency


def coded(count: int = 500, values: int = 17) -> tuple[bytes, torch.Tensor, torch.Tensor]:
    logits = torch.randn(count, values, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2
    drawn = torch.randint(0, values, (count,), generator=torch.Generator().manual_seed(2))
    return coder.encode(*intervals(logits, drawn)[:2]), logits, drawn


def test_a_stream_reads_back_in_pieces_of_any_size():
    stream, logits, values = coded()
    for size in (1, 7, 500):
        decoder = coder.Decoder(stream)
        assert torch.equal(torch.cat([decoder.read(frequencies(some)) for some in logits.split(size)]), values)
        decoder.finish()


def test_a_stream_is_as_long_as_its_information():
    stream, logits, values = coded()
    bits = (PRECISION - intervals(logits, values).frequency.double().log2()).sum()
    assert 8 * len(stream) < bits + 32


def test_reading_past_the_end_of_a_stream_is_an_error():
    stream, logits, _ = coded()
    decoder = coder.Decoder(stream)
    decoder.read(frequencies(logits))
    with pytest.raises(DamagedError, match="ends before"):
        decoder.read(frequencies(logits[:1]))


def test_what_is_left_of_a_stream_is_an_error():
    stream, logits, _ = coded()
    decoder = coder.Decoder(stream)
    decoder.read(frequencies(logits[:-1]))
    with pytest.raises(DamagedError, match="goes on"):
        decoder.finish()


def test_the_empty_stream_holds_no_symbols():
    assert coder.encode(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)) == b""
    coder.Decoder(b"").finish()
