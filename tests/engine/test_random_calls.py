"""Networks of random sizes: the bits of the reference. tests/fuzz/engine_calls.py makes more of them."""

import pytest

from tests.fuzz import engine_calls


@pytest.mark.parametrize("count", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_networks_of_random_sizes_give_the_bits_of_the_reference(count):
    engine_calls.main(count, seed=1)
