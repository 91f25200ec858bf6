"""What a checkpoint says when it cannot be written, and the hash by which processes compare their weights."""

from errno import ENOSPC
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from axial_transformers.training import checkpoints
from tests.training.test_loop import run

CPU = torch.device("cpu")


@pytest.mark.parametrize(("step", "before"), [(6, None), (12, "step-00000010"), (24, "step-00000020")])
def test_a_checkpoint_that_cannot_be_written_names_the_one_before(tmp_path, monkeypatch, step, before):
    def full(path: Path, tensors: dict[str, Tensor]) -> None:
        if f"step-{step:08d}" in str(path):
            raise OSError(ENOSPC, "No space left on device", str(path))
        write(path, tensors)

    write = checkpoints.write_tensors
    monkeypatch.setattr(checkpoints, "write_tensors", full)
    with pytest.raises(OSError, match=rf"step-{step:08d} could not be written .*No space left") as error:
        run(tmp_path / "run")
    newest = max((tmp_path / "run/checkpoints").iterdir(), default=None)
    assert newest == (before and tmp_path / "run/checkpoints" / before)
    assert (f"{newest} is intact: make room" in str(error.value)) == bool(before)
    assert not list((tmp_path / "run").rglob("*.part*"))


@settings(deadline=None)
@given(st.data())
def test_a_hash_of_weights_sees_every_bit_and_every_position(data):
    dtype = data.draw(st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool]))
    shapes = data.draw(st.lists(st.sampled_from([(), (0,), (1,), (7,), (3, 5), (4, 0)]), min_size=1, max_size=4))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    tensors = [torch.randint(-9, 9, shape, generator=generator).to(dtype) for shape in shapes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "CHUNK", data.draw(st.sampled_from([2, 4, 1 << 18])))
        before = digest(tensors)
        assert before == digest([each.clone() for each in tensors])
        assert 0 <= before < 2**63
        places = [(i, j) for i, each in enumerate(tensors) for j in range(each.nbytes)]
        if not places:
            return
        i, j = data.draw(st.sampled_from(places))
        flipped = [each.clone() for each in tensors]
        flipped[i].view(-1).view(torch.uint8)[j] ^= 1 if dtype == torch.bool else 1 << data.draw(st.integers(0, 7))
        assert digest(flipped) != before
        swapped = [each.clone() for each in tensors]
        elements = [(i, j) for i, each in enumerate(tensors) for j in range(each.numel())]
        (i, j), (m, n) = (data.draw(st.sampled_from(elements)) for _ in range(2))
        one, other = tensors[i].view(-1)[j], tensors[m].view(-1)[n]
        swapped[i].view(-1)[j], swapped[m].view(-1)[n] = other, one
        assert (digest(swapped) == before) == bool(one == other)


def digest(tensors: list[Tensor]) -> int:
    return checkpoints._digest_of_copies(tensors, CPU)


def test_a_hash_of_weights_is_that_of_their_values_not_of_how_they_lie():
    x = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    assert digest([x]) == digest([x.t().contiguous().t()]) != digest([x.t()])
    assert digest([torch.tensor(0.0)]) != digest([torch.tensor(-0.0)])
