"""The one loop that decodes computes the logits of the forward pass, at its cost."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from axial_transformers.decoding import NoiseChoice, decode, decode_naively, sampling
from axial_transformers.decoding.backend_choice import choose_backend
from axial_transformers.decoding.sampling import sample
from axial_transformers.models import AxialTransformer, Conditioning
from tests.small_models import PAIRWISE, VARIANTS, random_given, random_model, random_values, small_config

pairwise = pytest.mark.parametrize("config", PAIRWISE.values(), ids=PAIRWISE)
BATCH = 3


class Follow:
    """Chooses the values of `x` and records the logits."""

    def __init__(self, model: AxialTransformer, x: Tensor):
        self.x = x
        self.logits = torch.zeros(*x.shape, model.config.num_values, dtype=model.position.tables[0].dtype)

    def __call__(self, logits: Tensor, position: tuple[int, ...]) -> Tensor:
        self.logits[(slice(None), *position)] = logits
        return self.x[(slice(None), *position)]


def blank(model: AxialTransformer, x: Tensor) -> Tensor:
    """x with zeros at the positions that the model generates."""
    generated = torch.zeros(x.shape[1:], dtype=torch.bool)
    generated[tuple(model.order.T)] = True
    return x.masked_fill(generated, 0)


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
def test_cached_logits_equal_forward_logits(config):
    model = random_model(config)
    x, given = random_values(model, BATCH), random_given(model, BATCH)
    follow = Follow(model, x)
    assert torch.equal(decode(model, follow, blank(model, x), Conditioning(**given)), x)
    with torch.no_grad():
        rtol = 1e-11 if config.values == "ordinal" else 0
        torch.testing.assert_close(follow.logits, model(x, **given), rtol=rtol, atol=1e-12)


@pytest.mark.parametrize("name", ["2d deep", "lstm", "rotary", "gated convolutions 3d", "classes"])
def test_steps_under_autocast_give_the_logits_of_the_forward_pass_under_it(name):
    model = random_model(VARIANTS[name], torch.float32)
    x, given = random_values(model, BATCH), random_given(model, BATCH)
    follow = Follow(model, x)
    exact = model(x, **given)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(decode(model, follow, blank(model, x), Conditioning(**given)), x)
        expected = model.train()(x, **given)
        torch.testing.assert_close(follow.logits, expected, rtol=0, atol=0.02)
    with torch.autocast("cpu", torch.bfloat16):  # in bfloat16 the most likely values would tie
        steps_of_training, others = model(x, **given), [expected, model.eval()(x, **given)]
    assert steps_of_training.dtype == torch.bfloat16
    assert all(logits.dtype == torch.float32 for logits in others)
    assert 0 < (follow.logits - exact).square().mean().sqrt() < 0.01


def test_autocast_on_a_cpu_is_obeyed_by_eager_decoding_and_compiles_nothing():
    model = random_model(VARIANTS["2d"], torch.float32)
    noise = sampling.noise_for(model.config, BATCH, seed=1)
    sample(model, noise=noise, compile=True)  # kernels are loaded
    with torch.autocast("cpu", torch.bfloat16):
        sampled = sample(model, noise=noise)
        assert torch.equal(sampled, sample(model, noise=noise, compile=False))
        with pytest.raises(ValueError, match="bfloat16"):
            sample(model, noise=noise, compile=True)
        assert choose_backend(model, NoiseChoice(noise=noise), BATCH).outer_decoders == list(model.outer_decoders)


@pairwise
def test_samples_their_order_and_known_values_equal_those_of_naive_decoding(config):
    model = random_model(config)
    x, given = random_values(model, BATCH), Conditioning(**random_given(model, BATCH))
    sampled = NoiseChoice(noise=sampling.noise_for(config, BATCH, seed=1))
    known = torch.rand(x.shape[1:], generator=torch.Generator().manual_seed(2)) < 0.3
    for choice in (sampled, replace(sampled, known=x.masked_fill(~known, -1))):
        samples = []
        for walk in (decode, decode_naively):
            positions = []

            def choose(logits: Tensor, position: tuple[int, ...], choice=choice, positions=positions) -> Tensor:
                positions.append(position)
                return choice(logits, position)

            samples.append(walk(model, choose, blank(model, x), given))
            assert positions == [tuple(position) for position in model.order.tolist()]
        assert torch.equal(*samples)
    assert torch.equal(samples[0][:, known], x[:, known])
    assert not torch.equal(samples[0], x)


def flops(run) -> int:
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


@pytest.mark.parametrize(
    "config",
    [
        small_config((7,), 2),
        small_config((3, 4), 2, encoder_layers=4, outer_layers=4, inner_layers=2),
        small_config((3, 2, 3), 2, "frames", known_channels=2),
    ],
)
def test_a_whole_decode_costs_one_forward_pass(config):
    model = random_model(config, torch.float32)
    x = random_values(model, 2)
    forward = flops(lambda: model(x))
    assert 0 < flops(lambda: decode(model, Follow(model, x), x)) <= 1.05 * forward


@pytest.mark.parametrize("name", ["3d channels", "lstm"])
def test_state_belongs_to_the_call(name):
    """Decoding in the middle of another decoding, by the same model, changes neither."""
    model = random_model(VARIANTS[name])
    x, other = random_values(model, 2), random_values(model, 3, seed=1)
    middle = tuple(model.order[len(model.order) // 2].tolist())
    inside = Follow(model, other)

    class Interrupted(Follow):
        def __call__(self, logits: Tensor, position: tuple[int, ...]) -> Tensor:
            if position == middle:
                decode(model, inside, other)
            return super().__call__(logits, position)

    outside = Interrupted(model, x)
    decode(model, outside, x)
    for follow in (outside, inside):
        alone = Follow(model, follow.x)
        decode(model, alone, follow.x)
        assert torch.equal(follow.logits, alone.logits)


@pytest.mark.parametrize("walk", [decode, decode_naively])
def test_dropout_is_off_the_mode_is_restored_and_the_given_tensor_is_not_written_to(walk):
    model = random_model(small_config((2, 3), 2, dropout=0.5)).train()
    x = random_values(model, 2)
    first, second, given = Follow(model, x), Follow(model, x), torch.zeros_like(x)
    walk(model, first, given)
    walk(model, second, given)
    assert model.training
    assert torch.equal(first.logits, second.logits)
    assert not given.any()


@pytest.mark.parametrize(
    "config",
    [
        small_config((2, 1), encoder_layers=2, gated_convolutions=1, num_classes=3),
        small_config((2, 2), inner="lstm", values="ordinal"),
        small_config((2, 2), 2, "pixels", gated_convolutions=1),
    ],
    ids=["attention", "lstm", "pixels"],
)
def test_a_hook_of_any_part_changes_samples_or_is_refused(config):
    def doubled(part, args, out):
        return (2 * out[0], *out[1:]) if isinstance(out, tuple) else 2 * out

    plain, changed = random_model(config, torch.float32), 0
    x, given = random_values(plain, BATCH), Conditioning(**random_given(plain, BATCH))
    choose = NoiseChoice(noise=sampling.noise_for(config, BATCH, seed=1))
    expected = decode(plain, choose, x, given)
    for path in [path for path, part in plain.named_modules() if path and [*part.parameters()]]:
        model = deepcopy(plain)
        model.get_submodule(path).register_forward_hook(doubled)
        try:
            found = decode(model, choose, x, given, backend=choose_backend)
        except ValueError as error:
            if not str(error).startswith(f"{path} has hooks"):
                raise
            continue
        assert torch.equal(found, decode_naively(model, choose, x, given))
        changed += not torch.equal(found, expected)
    assert changed > 5
