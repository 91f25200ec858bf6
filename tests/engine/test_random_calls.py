"""Random calls of the engine: the bits of the reference, or an error. tests/fuzz/engine_calls.py makes more of them."""

from tests.fuzz import engine_calls


def test_random_calls_give_the_bits_of_the_reference_or_an_error():
    ends = engine_calls.main(30, seed=1)
    assert sum(count for end, count in ends.items() if end.endswith("equal")) > 15
    assert sum(count for end, count in ends.items() if end.endswith("ValueError")) > 0
