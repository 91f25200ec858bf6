"""The noise of samples: a generator that is known from a paper, and numbers of a known distribution."""

import numpy as np
import pytest
import torch

from axial_transformers.decoding import gumbel, noise, uniform

KNOWN_ANSWERS = [
    ([0] * 4, [0] * 2, [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]),
    (
        [0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89],
        [0x452821E638D01377, 0xBE5466CF34E90C6C],
        [0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6],
    ),
]
"""Counter, key and words, of the authors' library Random123."""


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x64-10 as in the paper."""
    a, b, c, d = counter
    for i in range(10):
        left, right = 0xD2E7470EE14C6C93 * a, 0xCA5A826395121157 * c
        keys = [(word + i * step) % 2**64 for word, step in zip(key, (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B))]
        a, b, c, d = right >> 64 ^ b ^ keys[0], right % 2**64, left >> 64 ^ d ^ keys[1], left % 2**64
    return [a, b, c, d]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_the_generator_is_that_of_the_paper(counter, key, words):
    assert philox(counter, key) == words
    whole = sum(word << (64 * i) for i, word in enumerate(counter))
    bits = np.random.Philox(key=key[0] + (key[1] << 64), counter=(whole - 1) % 2**256)  # NumPy adds one first
    assert bits.random_raw(4).tolist() == words


@pytest.mark.parametrize(("seed", "first"), [(0, 0), (-1, 3), (2**63 + 5, 2**63 - 2)])
def test_noise_is_a_function_of_seed_and_number(seed, first):
    expected = [
        [((word >> 12) + 0.5) / 2**52 for block in (1, 2) for word in philox([block, 0, n, 0], [seed % 2**64, 0])]
        for n in (first, first + 1)
    ]
    assert uniform((2, 7), seed, first).tolist() == [numbers[:7] for numbers in expected]
    by_definition = -torch.log(-torch.log(torch.tensor(expected, dtype=torch.float64)))
    found = gumbel((2, 2, 4), seed, first)
    assert found.dtype == torch.float32
    assert torch.equal(found.flatten(1), by_definition.float())


@pytest.mark.parametrize("kind", [gumbel, uniform])
def test_the_noise_of_a_sample_depends_on_no_other_and_not_on_the_size_of_parts(monkeypatch, kind):
    whole = kind((5, 3, 67), 4)
    assert torch.equal(kind((2, 201), 4, 3), whole[3:].flatten(1))
    assert len(whole.flatten(1).unique(dim=0)) == 5
    assert not torch.equal(kind((5, 3, 67), 5), whole)
    monkeypatch.setattr(noise, "NOISE_AT_ONCE", 100)
    assert torch.equal(kind((5, 3, 67), 4), whole)
    assert kind((0, 3)).shape == (0, 3)
