"""The peers are sound autoregressive models of equal size, and their trials resume."""

import sys
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from axial_transformers.likelihood.dependencies import check
from axial_transformers.models.linear_prediction import LinearPrediction
from tests.paths import ROOT
from tests.small_models import random_coefficients

sys.path.insert(0, str(ROOT / "experiments"))

import peers
import stored_rows
from peer_models import (
    NAMES,
    PEERS,
    Images,
    OfDifferences,
    PixelCNNPlusPlus,
    TwoStacks,
    build,
    images_of,
    of_size,
    size,
)

SMALL = {"one channel": Images(5, 4, 1, 6), "three channels": Images(3, 4, 3, 5)}
WIDTHS = {"GPT": (8, 12), "gated PixelCNN": (24, 48), "PixelCNN++": (8, 6)}


def random_peer(name, images):
    """Weights of scale 1: near their initial values, models hide errors."""
    torch.manual_seed(0)
    model = PEERS[name].build(images, *WIDTHS[name]).double()
    with torch.no_grad():
        for parameter in model.parameters():
            fan_in = parameter.shape[-1] if parameter.ndim > 1 else 100
            parameter.copy_(torch.randn(parameter.shape) / fan_in**0.5)
        for part in model.modules():
            if isinstance(part, nn.LayerNorm):
                part.weight += 1
        if isinstance(model, PixelCNNPlusPlus):  # logistics as wide as an image's values, so that none vanishes
            model.last.weight *= 0.5
    return model


def random_images(images, count):
    return torch.randint(images.values, (count, *images[:3]), generator=torch.Generator().manual_seed(1))


@pytest.fixture(
    params=[(*each, of) for each in product(PEERS, SMALL) for of in ("values", "differences")], ids=" ".join
)
def peer(request):
    name, images, of = request.param
    found = random_peer(name, SMALL[images])
    if of == "values":
        return found
    prediction = LinearPrediction(found.images[:2], found.images.channels, found.images.values)
    random_coefficients(prediction)
    return OfDifferences(found, prediction)


@torch.no_grad()
def test_a_position_depends_on_all_earlier_positions_and_on_no_other(peer):
    x = random_images(peer.images, 1)
    positions = x.numel()
    changed = x.flatten().repeat(positions, 1)
    changed[range(positions), range(positions)] = (changed.diagonal() + peer.images.values // 2) % peer.images.values
    before = peer.log_probabilities(x).view(1, positions, -1)
    after = peer.log_probabilities(changed.view(positions, *x.shape[1:])).view(positions, positions, -1)
    found = check((after - before).abs().amax(-1).T)
    assert (found.leaks, found.holes) == (0, 0)


@torch.no_grad()
def test_probabilities_sum_to_1_and_give_the_likelihood(peer):
    x = random_images(peer.images, 3)
    log_p = peer.log_probabilities(x)
    assert torch.allclose(log_p.exp().sum(-1), torch.ones(x.shape, dtype=torch.float64))
    assert torch.allclose(-log_p.gather(-1, x.unsqueeze(-1)).squeeze(-1), peer.nats(x))


@torch.no_grad()
def test_cached_probabilities_equal_parallel_ones(peer):
    x = random_images(peer.images, 2)
    found = torch.zeros_like(peer.log_probabilities(x))

    def choose(log_p, position):
        found[(slice(None), *position)] = log_p
        return x[(slice(None), *position)]

    assert torch.equal(peer.decode(2, choose), x)
    assert torch.allclose(found, peer.log_probabilities(x), rtol=0, atol=1e-10)


def test_samples_have_the_probabilities_of_the_model():
    peer, count = random_peer("PixelCNN++", Images(1, 1, 2, 4)), 4000
    sampled = peer.sample(count, torch.Generator().manual_seed(0)).flatten(1)
    every = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    p = (-peer.nats(every.view(-1, 1, 1, 2)).flatten(1).sum(1)).exp()
    assert p.sum().item() == pytest.approx(1)
    shares = (sampled[:, 0] * 4 + sampled[:, 1]).bincount(minlength=16) / count
    assert (shares - p).abs().max().item() < 0.03


@pytest.mark.parametrize("name", PEERS)
def test_likelihoods_are_float32_where_products_are_bfloat16(name):
    peer, x = random_peer(name, SMALL["three channels"]).float(), random_images(SMALL["three channels"], 2)
    with torch.autocast("cpu", torch.bfloat16):
        nats, log_p = peer.nats(x), peer.log_probabilities(x)
    assert nats.dtype == log_p.dtype == torch.float32
    assert torch.allclose(log_p.exp().sum(-1), torch.ones(x.shape), atol=1e-5)


def test_extreme_logistics_have_finite_gradients():
    peer = PixelCNNPlusPlus(Images(2, 3, 3, 256), 8, 8)
    with torch.no_grad():
        peer.last.bias.view(10, -1)[:, 1:4] = 50.0
        peer.last.bias.view(10, -1)[:, 4:7] = -50.0
    loss = peer.loss(torch.zeros(1, 2, 3, 3, dtype=torch.int64))
    loss.backward()
    assert loss.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in peer.parameters())


@pytest.mark.parametrize("kind", peers.KINDS)
@pytest.mark.parametrize("name", PEERS)
def test_peers_have_the_parameters_of_the_axial_model(name, kind):
    config = peers.KINDS[kind].recipe().model
    with torch.device("meta"):
        wanted = size(build("axial", config))
        found = size(PEERS[name].build(images_of(config), *of_size(name, images_of(config), wanted)))
    assert abs(found / wanted - 1) < 0.02


@pytest.mark.parametrize("name", NAMES)
def test_muon_takes_every_matrix_of_the_blocks(name):
    model = build(name, small_recipe().model)
    for matrix, count in model.matrices().items():
        assert matrix.ndim == 2
        assert matrix.shape[0] % count == 0
    blocks = model.blocks if isinstance(model, TwoStacks) else None
    if blocks is not None:
        assert {p for p in blocks.parameters() if p.ndim == 2} == set(model.matrices())


RECIPE = peers.KINDS["fashion"].recipe()


def small_recipe():
    recipe = RECIPE
    config = replace(recipe.model, shape=(6, 5), num_values=16, dim=48, heads=2, outer_layers=2, inner_layers=2)
    return replace(recipe, model=config, training=replace(recipe.training, batch_size=2))


@pytest.fixture
def small_data(tmp_path, monkeypatch):
    kind = replace(peers.KINDS["fashion"], recipe=small_recipe, validation=3, timed_batches=(1,))
    monkeypatch.setitem(peers.KINDS, "fashion", kind)
    images = np.random.default_rng(0).integers(0, 16, (40, 6, 5), dtype=np.uint8)
    np.savez(tmp_path / kind.source, images=images)
    return tmp_path


def test_runs_write_rows_resume_and_take_the_best_rate_again(small_data, monkeypatch, capsys):
    asked = []

    def here(command, wanted):
        asked.append(wanted)
        return peers.trial(command[-1], **wanted)

    monkeypatch.setattr(stored_rows, "in_its_own_process", here)
    out = small_data / "out"
    settings = {"seconds": 0.02, "rates": 2, "seeds": 2}
    peers.run(small_data, out, ("fashion",), ("axial", "gated PixelCNN"), **settings)
    rows = stored_rows.read(out)
    assert len(rows) == len(asked) == 2 * 2 * (2 + 1)
    assert {row["seed"] for row in rows} == {0, 1}
    assert all(row["steps"] > 0 and row["bits_per_dim"] > 0 for row in rows)
    assert sum("sample_seconds" in row for row in rows) == 2
    lines = (out / "rows.jsonl").read_text().splitlines()
    (out / "rows.jsonl").write_text("\n".join(lines[:-1]) + "\n")
    peers.run(small_data, out, ("fashion",), ("axial", "gated PixelCNN"), **settings)
    assert len(asked) == len(rows) + 1
    assert asked[-1] == asked[-2]
    printed = capsys.readouterr().out
    assert "| axial | muon |" in printed
    assert "gated PixelCNN" in printed.splitlines()[-1]


def test_all_of_a_folder_of_its_own_trains_and_the_source_validates(small_data, monkeypatch):
    kind = replace(peers.KINDS["fashion"], trained_on="more.npz")
    monkeypatch.setitem(peers.KINDS, "fashion", kind)
    np.savez(small_data / "more.npz", images=np.zeros((7, 6, 5), dtype=np.uint8))
    assert len(kind.training_part(small_data).values) == 7
    found = peers.trial(small_data, "fashion", "axial", "muon", 0.01, 0, 0.02)
    assert (found["validation"], found["steps"] > 0) == (3, True)


def line(model, bits, rate=1.0, seed=0):
    row = {"kind": "fashion", "model": model, "optimizer": "muon", "learning_rate": rate, "seed": seed, "seconds": 1.0}
    return row | {"bits_per_dim": bits, "steps": 5, "parameters": 9, "step_megabytes": 1.0}


def test_the_sentence_names_the_winner_and_a_diverged_rate_never_wins():
    rows = [line("axial", None, 2.0), line("axial", 2.0), line("axial", 2.2, seed=1), line("GPT", 4.0, 2.0)]
    summary = peers.summarised(rows)
    assert [each["bits_per_dim"] for each in summary] == [pytest.approx(2.1), 4.0]
    assert peers.sentences(summary) == [
        "fashion, muon, 1 s: the axial model has the fewest bits/dim, 2.100, "
        "47.5 % below the best peer, GPT with 4.000."
    ]
    lost = peers.sentences(peers.summarised([line("axial", 3.0), line("GPT", 2.0)]))
    assert lost == ["fashion, muon, 1 s: GPT has the fewest bits/dim, 2.000; the axial model has 3.000, 50.0 % more."]
