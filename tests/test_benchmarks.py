"""What training is measured against is the same model, and benchmarks can be run."""

import importlib
import json
import sys
from pathlib import Path

import pytest
import torch

from axial_transformers.likelihood.bits import random_slice_loss
from small_models import random_given, random_model, random_values, small_config

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from straightforward import Straightforward

CONFIGS = {
    "one channel": small_config((3, 5), outer_layers=4, inner_layers=2, mlp_ratio=2.0),
    "classes": small_config((3, 5), num_classes=3),
    "rotary": small_config((3, 5), outer_layers=4, rotary=50.0),
    "channels": small_config((3, 5), 3, encoder_layers=4, outer_layers=2, inner_layers=1),
    "predicted columns": small_config((3, 4), 3, "columns", prediction="neighbours_and_channels"),
    "signed columns": small_config((3, 4), 3, "columns", prediction="neighbours_and_channels", signed_differences=True),
    "signed channels": small_config((3, 4), 2, prediction="neighbours_and_channels", signed_differences=True),
    "convolution": small_config((5, 4), convolution=2),
    "convolution of channels": small_config((3, 4), 2, convolution=1),
    "signed convolution": small_config(
        (4, 3), 3, "columns", convolution=2, prediction="neighbours_and_channels", signed_differences=True
    ),
    "channels and classes": small_config((5, 3), 2, num_classes=3),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_with_equal_weights_the_straightforward_model_has_our_loss_and_gradients(name):
    ours = random_model(CONFIGS[name])
    plain = Straightforward(ours.config).double()
    plain.load(ours.state_dict())
    assert sum(p.numel() for p in plain.parameters()) == sum(p.numel() for p in ours.parameters())
    x, channel = random_values(ours, 4), torch.randint(len(ours.slices), (4,))
    label = random_given(ours, 4).get("label")
    one, other = random_slice_loss(ours, x, label, channel=channel), plain(x, label, channel)
    assert one.item() == pytest.approx(other.item(), rel=1e-6)
    one.backward()
    other.backward()
    for mine, theirs in (
        (ours.embed_value.table, plain.values.weight),
        (ours.inner_decoder.blocks[0].attention.norm.weight, plain.inner[0].attention.norm.weight),
    ):
        assert torch.allclose(mine.grad, theirs.grad, rtol=1e-4, atol=1e-6)


NEEDED = {
    "attention": "axial_attention",
    "authors_worker": "tensorflow",
    "compression": "imagecodecs",
    "video": "imagecodecs",
}
"""Packages that are there only with extras, or in another environment."""


@pytest.mark.parametrize("name", sorted(path.stem for path in Path(__file__).parents[1].glob("benchmarks/*.py")))
def test_a_benchmark_finds_all_that_it_imports(name):
    pytest.importorskip(NEEDED.get(name, "torch"))
    importlib.import_module(name)


def test_a_run_that_leaves_the_recorded_curve_is_told_where(tmp_path, monkeypatch, capsys):
    import curves

    monkeypatch.setattr(curves, "CURVES", tmp_path / "curves")
    lines = [
        {"step": 10, "bits_per_dim": 4.0},
        {"step": 20, "bits_per_dim": 3.0},
        {"step": 20, "validation_bits_per_dim": 3.1},
    ]
    for name, last in (("recorded", 3.1), ("near", 3.15), ("far", 3.3)):
        run = tmp_path / name
        run.mkdir()
        lines[-1]["validation_bits_per_dim"] = last
        (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    curves.record(tmp_path / "recorded", "it")
    for name, status in (("near", 0), ("far", 1)):
        with pytest.raises(SystemExit) as ended:
            curves.compare(tmp_path / name, "it")
        assert ended.value.code == status
    assert "the largest difference is 6.5%, at 20: 3.300, recorded 3.100" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"there is no .*nowhere"):
        curves.compare(tmp_path / "near", "nowhere")
