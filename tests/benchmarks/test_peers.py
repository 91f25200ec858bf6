"""The peers are sound autoregressive models."""

import pytest
import torch

from axial_transformers.layers.initialisation import randomise
from axial_transformers.models.values.linear_prediction import LinearPrediction
from experiments.dependencies import check
from tests import benchmark_commands  # noqa: F401  the path of the scripts
from tests.small_models import random_coefficients

from peer_models import PEERS, Conv, Images, OfDifferences  # isort: skip

WIDTHS = {"GPT": (8, 12), "gated PixelCNN": (24, 48), "PixelCNN++": (8, 6)}


def random_peer(name, images):
    """Weights of scale 1: near their initial values, models hide errors."""
    peer = PEERS[name].build(images, *WIDTHS[name]).double()
    randomise(peer, torch.Generator().manual_seed(0))
    with torch.no_grad():
        for part in peer.modules():
            if isinstance(part, Conv):
                part.weight /= part.weight.shape[1] ** 0.5
    return peer


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("images", [Images(5, 4, 1, 6), Images(3, 4, 3, 5)], ids=["values", "differences of colours"])
@torch.no_grad()
def test_peers_see_all_that_is_earlier_and_nothing_else_and_decode_what_they_score(name, images):
    peer, shape = random_peer(name, images), images[:3]
    if images.channels > 1:
        prediction = LinearPrediction(images[:2], images.channels, images.values)
        random_coefficients(prediction)
        peer = OfDifferences(peer, prediction)
    x = torch.randint(images.values, (1, *shape), generator=torch.Generator().manual_seed(1))
    log_p = peer.log_probabilities(x)
    assert torch.allclose(log_p.exp().sum(-1), torch.ones(x.shape, dtype=torch.float64))
    assert torch.allclose(-log_p.gather(-1, x.unsqueeze(-1)).squeeze(-1), peer.nats(x))

    positions = x.numel()
    changed = x.flatten().repeat(positions, 1)
    changed[range(positions), range(positions)] = (changed.diagonal() + images.values // 2) % images.values
    after = peer.log_probabilities(changed.view(positions, *shape)).view(positions, positions, -1)
    found = check((after - log_p.view(1, positions, -1)).abs().amax(-1).T)
    assert (found.leaks, found.holes) == (0, 0)

    decoded = torch.zeros_like(log_p)

    def choose(of_position, position):
        decoded[(slice(None), *position)] = of_position
        return x[(slice(None), *position)]

    assert torch.equal(peer.decode(1, choose), x)
    assert torch.allclose(decoded, log_p, rtol=0, atol=1e-10)
