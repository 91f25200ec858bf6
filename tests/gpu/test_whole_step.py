"""A step of training as a GPU repeats it, tested without one: it reads nothing back, and is a function of tensors."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from axial_transformers.data import Examples
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.ops import cuda_graphs
from axial_transformers.ops.torch_private import TorchDispatchMode, tree_leaves
from axial_transformers.recipes import NAMED
from axial_transformers.training import TrainConfig, step as step_module
from axial_transformers.training.augmentation import conditioning
from axial_transformers.training.batches import check_matches
from axial_transformers.training.checkpoints import Checkpoints
from axial_transformers.training.processes import Processes
from axial_transformers.training.step import Learner, prepare_learner, step
from tests.small_models import random_model

CPU, META = torch.device("cpu"), torch.device("meta")


def random_examples(model: AxialTransformerConfig) -> Examples:
    rng = np.random.default_rng(0)
    values = rng.integers(0, model.num_values, (16, *model.shape, model.channels), dtype=np.uint8)
    labels = np.arange(16) % model.num_classes if model.num_classes else None
    return Examples(values, [*map(str, range(16))], labels=labels, range=model.range)


class ReadsNothing(TorchDispatchMode):
    """Refuse what waits for a device, which meta stands for: its numbers on the CPU, and a copy to it.

    A tensor on meta has no numbers: torch itself refuses `item`, `nonzero`, `tolist` and a copy to the CPU.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **kwargs or {})
        before = {x.device for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor) and x.ndim}
        after = {x.device for x in tree_leaves(out) if isinstance(x, Tensor)}
        assert not (META in before and CPU in after), f"{func} reads"
        assert not (CPU in before and META in after), f"{func} sends"
        return out


def tiny(recipe: str) -> tuple[AxialTransformerConfig, TrainConfig]:
    """Return a recipe with short axes, two heads, and one round of layers in every stack."""
    run = NAMED[recipe]()
    model = run.model
    shape = tuple(min(length, 4) for length in model.shape) or (4, 4)
    axes = len(shape) - (model.layout == "frames")
    small = {
        "shape": shape,
        "dim": 16,
        "heads": 2,
        "mlp_ratio": 1.0,
        "encoder_layers": axes * bool(model.encoder_layers),
    }
    training = {"batch_size": 2, "accumulate": 1, "compile": False, "precision": "float32", "device": "cpu"}
    same = {"steps": 100, "learning_rate": 2**-9, "muon_learning_rate": 2**-7, "warmup_steps": 0, "minutes": None}
    model = replace(model, **small, outer_layers=tuple(range(axes, 1, -1)), inner_layers=1)
    return model, replace(run.training, **training, **same)


def kind(recipe: str) -> str:
    """Return what makes a step: two recipes may differ in sizes and rates only."""
    model, training = tiny(recipe)
    return repr((model, training.optimizer, training.distribution_augmentation, training.label_dropout))


KINDS = {kind(recipe): recipe for recipe in NAMED}


@pytest.mark.parametrize("recipe", KINDS.values())
def test_a_step_of_a_recipe_reads_nothing_back(recipe, monkeypatch):
    model, training = tiny(recipe)
    monkeypatch.setattr(step_module, "dropout_seeded", lambda seed, device: nullcontext())  # torch has none for meta
    monkeypatch.setattr(TrainConfig, "autocast", lambda config, device: nullcontext())
    with META:
        net = AxialTransformer(model)
    run = prepare_learner(net, random_examples(model), training, Processes(META))
    batch = next(run.batches).to(META)
    if batch.operations is not None:
        conditioning(batch.operations, model.shape, model.dim)  # copies its table once
    run.batches = iter([batch])
    run.meter.every = 2
    with ReadsNothing():
        step(run)
    assert run.state.step == 1


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is recorded in place of CUDA graphs: done again at every replay, from and into the same tensors."""
    recorded = []

    def record(work: Any, device: torch.device) -> tuple[Tensor, Any]:
        recorded.append(work)
        output = work()
        return output, lambda: output.copy_(work())

    monkeypatch.setattr(cuda_graphs, "record", record)
    return recorded


def run_of(recipe: str, **changes: Any) -> Learner:
    """Return a run of the tiny recipe with weights of scale 1."""
    model, training = tiny(recipe)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = random_model(model, torch.float32)
    return prepare_learner(net, random_examples(model), replace(training, **changes), Processes(CPU))


def states(run: Learner) -> dict[str, Tensor]:
    """Return weights, EMA weights and moments, each as one vector."""
    kinds = run.weights.tensors().items()
    return {kind: torch.cat([x.detach().flatten().double() for x in tensors.values()]) for kind, tensors in kinds}


@pytest.mark.parametrize("recipe", ["digits", "photos32", "imagenet32_released", "clips32_frames"])
def test_a_recorded_step_reads_batch_rate_limit_and_share_anew(recipe, recorded):
    """Every replay has other ones; one step is left out."""
    usual, by_graph = run_of(recipe, schedule="linear"), run_of(recipe, schedule="linear", cuda_graph=True)
    before = states(usual)
    for limit in (None, None, 1e-6, None, 1e6):
        for run in (usual, by_graph):
            run.state.norm_limit = limit
            step(run)
        assert by_graph.learning_rate == usual.learning_rate > 0
    assert len(recorded) == 1
    assert by_graph.state.left_out == usual.state.left_out == 1
    for name in ("losses", "norms"):
        assert getattr(by_graph.state, name) == pytest.approx(getattr(usual.state, name), rel=1e-4)
    after = states(usual)
    for kind, vector in states(by_graph).items():  # its rates are float32, and Adam magnifies noise
        assert (vector - after[kind]).norm() < 1e-2 * (after[kind] - before[kind]).norm(), kind


def test_a_run_that_goes_back_is_recorded_anew(recorded, tmp_path):
    """The moments of a checkpoint lie elsewhere in memory."""
    run = run_of("digits", cuda_graph=True)
    (tmp_path / "train.json").touch()
    checkpoints = Checkpoints(tmp_path, run.processes)
    checkpoints.save(run.weights, run.state)
    for _ in range(2):
        step(run)
    after = states(run)
    run.state.left_out_at = (1,)
    run.go_back(checkpoints)
    assert (run.state.step, run.state.rates) == (0, 0.5)
    run.state.rates = 1.0
    for _ in range(2):
        step(run)
    assert len(recorded) == 2
    for kind, vector in states(run).items():
        assert torch.equal(vector, after[kind]), kind


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"device": "cpu"}, r"training\.cuda_graph=True needs a CUDA device, not cpu"),
        ({"accumulate": 2}, r"training\.accumulate"),
        ({"checkpoint_blocks": True}, r"training\.checkpoint_blocks"),
    ],
    ids=str,
)
def test_a_graph_is_refused_where_it_cannot_be_recorded(settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        TrainConfig(cuda_graph=True, **settings).resolve_auto()


def test_a_graph_is_refused_for_several_processes():
    model, training = tiny("digits")
    processes = Processes(CPU)
    processes.count = 2
    with META:
        net = AxialTransformer(model)
    with pytest.raises(ValueError, match=r"training\.cuda_graph takes one process, not 2"):
        check_matches(net, random_examples(model), replace(training, cuda_graph=True), processes)
