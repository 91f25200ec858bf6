"""A GPU computes what a CPU does; `make test-gpu`."""

import pytest
import torch

from axial_transformers.decoding.sampling import sample
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.ops.axial_attention import axial_attention
from small_models import VARIANTS, random_given, random_model, random_values

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
def test_loss_and_gradients_are_those_of_a_cpu(config):
    found = []
    for device in ("cpu", "cuda"):
        model = random_model(config, torch.float32).to(device)
        x, channel = random_values(model, 3), torch.full((3,), model.slices[-1])
        loss = random_slice_loss(model, x, **random_given(model, 3), channel=channel)
        found.append([grad.cpu() for grad in (loss, *torch.autograd.grad(loss, tuple(model.parameters())))])
    for on_cpu, on_gpu in zip(*found):
        torch.testing.assert_close(on_gpu, on_cpu, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [(70_000, 3), (1, 3, 70_000)], ids=str)
def test_more_lines_than_a_kernel_takes_are_attended_along(shape):
    q, k, v = (torch.randn(*shape, 1, 8, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    out = axial_attention(q, k, v, 1)
    wide = [x.detach().double().movedim(1, -2) for x in (q, k, v)]
    expected = torch.softmax(wide[0] @ wide[1].mT / 8**0.5, dim=-1) @ wide[2]
    torch.testing.assert_close(out.double(), expected.movedim(-2, 1), rtol=0, atol=0.03)
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(out.sum(), (q, k, v)))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_every_device_records_graphs_of_its_own():
    model = random_model(VARIANTS["2d"], torch.float32)
    drawn = [
        sample(model.to(device), 3, generator=torch.Generator().manual_seed(0), compile=compile).cpu()
        for device, compile in (("cuda:0", True), ("cuda:1", True), ("cuda:1", True), ("cuda:1", False))
    ]
    assert all(torch.equal(each, drawn[-1]) for each in drawn)
