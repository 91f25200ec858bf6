"""A GPU computes what a CPU does; `make test-gpu`."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from axial_transformers.compression import compress, decompress
from axial_transformers.data.examples import Examples
from axial_transformers.data.value_range import ValueRange
from axial_transformers.decoding import graph_backend, gumbel, uniform
from axial_transformers.decoding.sampling import sample
from axial_transformers.likelihood.bits import bits_per_dim, random_slice_loss
from axial_transformers.likelihood.evaluation import bits_of_each
from axial_transformers.machine import arithmetic
from axial_transformers.ops import torch_attention, triton_attention
from axial_transformers.ops.axial_attention import axial_attention
from axial_transformers.training import TrainConfig, read_run, train
from axial_transformers.training.metrics import forget_peak_memory, peak_memory
from tests.forced_backend import forced
from tests.small_models import VARIANTS, random_given, random_model, random_values

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


@pytest.mark.parametrize("kind", ["key mask", "bias of all", "bias of an example", "bias of a line"])
def test_a_mask_is_not_copied_for_those_that_share_it(kind):
    batch, lines, length, heads = 8, 16, 511, 2  # keys that are no multiple of 8 are copied, with all that is given
    q, k, v = (torch.randn(batch, lines, length, heads, 32, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    shapes = {"bias of all": (1,), "bias of an example": (batch,), "bias of a line": (1, lines)}
    masks = {"key_mask": torch.rand(batch, lines, length, device="cuda") > 0.3}
    if kind in shapes:
        masks = {"attn_bias": torch.randn(*shapes[kind], heads, length, length, device="cuda", dtype=torch.bfloat16)}
    of_mask = sum(mask.numel() * q.itemsize for mask in masks.values())
    forget_peak_memory(CUDA)
    before = peak_memory(CUDA)
    out = axial_attention(q, k, v, 2, **masks)
    assert peak_memory(CUDA) - before < 6 * q.nbytes + 3 * of_mask  # all scores are more
    wide = [x[-1, -1].double().movedim(1, 0) for x in (q, k, v)]
    scores = wide[0] @ wide[1].mT / 32**0.5
    if kind in shapes:
        bias = masks["attn_bias"].double()
        scores += bias[-1, -1] if bias.ndim == 5 else bias[-1]
    else:
        scores.masked_fill_(~masks["key_mask"][-1, -1], -torch.inf)
    expected = (torch.softmax(scores, dim=-1) @ wide[2]).movedim(0, 1)
    torch.testing.assert_close(out[-1, -1].double(), expected, rtol=0, atol=0.03)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_every_device_records_graphs_of_its_own():
    model = random_model(VARIANTS["2d"], torch.float32)
    sampled = [
        sample(model.to(device), 3, seed=0, compile=compile).cpu()
        for device, compile in (("cuda:0", True), ("cuda:1", True), ("cuda:1", True), ("cuda:1", False))
    ]
    assert all(torch.equal(each, sampled[-1]) for each in sampled)


def test_noise_is_that_of_the_cpu():
    on_cpu, on_gpu = (gumbel((3, 1 << 21), device=device) for device in ("cpu", "cuda"))
    torch.testing.assert_close(on_gpu.cpu(), on_cpu, rtol=1e-6, atol=1e-6)
    assert torch.equal(uniform((3, 1 << 21), device="cuda").cpu(), uniform((3, 1 << 21)))


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
def test_likelihoods_under_autocast_are_near_those_in_float32(config):
    model = random_model(config, torch.float32).to("cuda")
    x, given = random_values(model, 16), random_given(model, 16)
    exact = bits_per_dim(model, x, **given)
    with torch.autocast("cuda", torch.bfloat16):
        rough = bits_per_dim(model, x, **given)
    assert not torch.equal(exact, rough)
    torch.testing.assert_close(rough, exact, rtol=0.02, atol=0.02)


def test_the_self_test_of_graphs_passes():
    assert graph_backend.failed_self_test(torch.device("cuda:0")) is None


@pytest.mark.parametrize("name", ["2d deep", "3d channels", "gated convolutions", "centred channels", "lstm"])
def test_samples_are_taken_by_graphs_and_torchs_random_numbers_stay(name):
    graph_backend.failed_self_test.cache_clear()
    model = random_model(VARIANTS[name], torch.float32).to("cuda")
    before = torch.get_rng_state(), torch.cuda.get_rng_state()
    sampled = [sample(model, 16, seed=0, compile=compile) for compile in (None, None, False)]
    assert model in graph_backend._kept
    assert torch.equal(sampled[0], sampled[1])
    assert (sampled[0] != sampled[2]).flatten(1).any(1).sum() <= 1
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.equal(torch.cuda.get_rng_state(), before[1])


def test_graphs_keep_the_memory_of_one_decoding():
    model, used = random_model(VARIANTS["3d channels"], torch.float32).to("cuda"), []
    for count in (64, 64, 16, 64):
        sample(model, count, seed=0)
        used.append(torch.cuda.memory_allocated())
    assert used[0] == used[1] == used[3]
    assert used[2] <= used[0]


def test_no_cache_holds_what_its_memory_held():
    model = random_model(VARIANTS["3d channels"], torch.float32).to("cuda")
    expected = sample(model, 16, seed=0, compile=False)
    torch.empty(1 << 26, device="cuda").fill_(torch.nan)
    assert (sample(model, 16, seed=0) != expected).flatten(1).any(1).sum() <= 1


@pytest.mark.parametrize("name", ["2d", "3d channels", "lstm"])
def test_graphs_under_autocast_sample_what_eager_decoding_samples(name):
    model = random_model(VARIANTS[name], torch.float32).to("cuda")
    for _ in range(2):  # the second time a graph is replayed, by weights that have changed since it was recorded
        sampled = []
        for compile in (True, False):
            with torch.autocast("cuda", torch.bfloat16):
                sampled.append(sample(model, 64, seed=0, compile=compile))
            torch.empty(1 << 26, device="cuda").fill_(torch.nan)  # in what autocast has freed
        assert (sampled[0] != sampled[1]).flatten(1).any(1).sum() <= 4
        with torch.no_grad():
            model.head[-1].bias.uniform_(-2, 2)


CUDA = torch.device("cuda")
TINY = VARIANTS["2d deep"]


def trained(folder, *ends: int, **options) -> dict[str, torch.Tensor]:
    """Weights after the last of the steps at which the run ends, and is resumed after all but the last."""
    values = np.random.default_rng(0).integers(0, 5, (32, 3, 2, 2), dtype=np.uint8)
    examples = Examples(values, [str(i) for i in range(32)], range=ValueRange(0, 4))
    config = TrainConfig(steps=ends[0], batch_size=8, warmup_steps=1, save_every=3, log_every=1, device="cuda")
    for end in ends:
        model = random_model(TINY, torch.float32)
        train(model, examples, dataclasses.replace(config, steps=end, **options), folder, resume=end != ends[0])
    return load_file(folder / "checkpoints" / f"step-{ends[-1]:08d}" / "model.safetensors")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_deterministic_run_resumes_bitwise(tmp_path, monkeypatch, precision):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    options = {"deterministic": True, "compile": False, "precision": precision}
    whole, resumed = trained(tmp_path / "whole", 6, **options), trained(tmp_path / "resumed", 3, 6, **options)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.parametrize("options", [{}, {"optimizer": "muon"}, {"compile": True}], ids=str)
def test_a_run_whose_step_is_a_graph_is_the_usual_run(tmp_path, options):
    options = {"precision": "float32", "compile": False, **options}
    usual = trained(tmp_path / "usual", 6, **options)
    by_graph = trained(tmp_path / "graph", 3, 6, cuda_graph=True, **options)  # a resume records it anew
    before = random_model(TINY, torch.float32).state_dict()
    moved = torch.cat([(usual[name] - before[name]).flatten() for name in usual]).norm()
    apart = torch.cat([(usual[name] - by_graph[name]).flatten() for name in usual]).norm()
    assert apart < 1e-2 * moved


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(("length", "width"), [(32, 8), (64, 32), (128, 64), (200, 48), (256, 64)], ids=str)
def test_kernels_of_masks_and_biases_are_as_near_float64_as_torch_and_repeat_their_bits(length, width, dtype):
    shape = (2, 3, length, 2, width)
    q, k, v, grad = (torch.randn(shape, device=CUDA).to(dtype).requires_grad_() for _ in range(4))
    mask = torch.rand(shape[:3], device=CUDA) > 0.3
    bias = torch.randn(2, 2, length, length, device=CUDA).to(dtype).requires_grad_()
    found = {}
    with arithmetic(CUDA, tf32=True):
        for name, backend in {"triton": triton_attention, "again": triton_attention, "torch": torch_attention}.items():
            with forced(backend):
                out = axial_attention(q, k, v, 2, True, mask, bias)
            found[name] = [out, *torch.autograd.grad(out, (q, k, v, bias), grad)]
    wide = [x.detach().double().requires_grad_() for x in (q, k, v, bias)]
    with forced(torch_attention):
        out = axial_attention(*wide[:3], 2, True, mask, wide[3])
    exact = [out, *torch.autograd.grad(out, wide, grad.double())]
    for ours, again, usual, right in zip(found["triton"], found["again"], found["torch"], exact):
        assert torch.equal(ours, again)
        error, bound = ((x.double() - right).norm() for x in (ours, usual))
        assert error < 2 * bound + 1e-3 * right.norm()


def test_a_run_compiles_and_records_it_and_counts_its_own_memory_only(tmp_path):
    torch.empty(200_000_000, device=CUDA)
    trained(tmp_path / "run", 4)
    training = read_run(tmp_path / "run").run.training
    assert training.compile is True
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert 0 < lines[-1]["peak_memory_bytes"] < 200e6


def test_peak_memory_can_be_forgotten():
    held = torch.empty(1 << 28, device="cuda")
    del held
    assert peak_memory(CUDA) >= 1 << 30
    forget_peak_memory(CUDA)
    assert peak_memory(CUDA) < 1 << 30


def test_tf32_rounds_matrix_products_and_evaluations_never_have_it():
    a = torch.randn(512, 512, device="cuda")
    exact, errors = a.double() @ a.double(), {}
    for tf32 in (False, True):
        with arithmetic(CUDA, tf32=tf32):
            errors[tf32] = float(((a @ a).double() - exact).abs().max())
    assert 20 * errors[False] < errors[True] < 1
    for config in (TINY, VARIANTS["lstm"]):
        model = random_model(config, torch.float32)
        x = random_values(model, 4)
        with arithmetic(CUDA, tf32=True):
            on_gpu = bits_of_each(model.to(CUDA), x)
        torch.testing.assert_close(on_gpu, bits_of_each(model.cpu(), x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("here", "there"), [("cpu", "cuda"), ("cuda", "cpu"), ("cuda", "cuda")])
def test_archives_pass_between_a_cpu_and_a_gpu(here, there):
    model = random_model(TINY, torch.float32)
    images = random_values(model, 5).to(torch.uint8)
    archive = compress(model.to(here), images)
    assert torch.equal(decompress(model.to(there), archive).cpu(), images)
