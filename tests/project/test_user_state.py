"""A call leaves the user's program, and the user's model, as they were: after a result and after an error."""

import hashlib
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import axial_transformers as axial
from axial_transformers import AxialTransformer, decoding, likelihood, pictures, recipes
from axial_transformers.compression import compress_files, decompress_files
from axial_transformers.data import examples_from, load, save_arrays
from axial_transformers.decoding import NoiseChoice, decode
from axial_transformers.likelihood.outliers import score
from axial_transformers.ops.elementwise import dropout_seeded
from axial_transformers.training import TrainConfig, train
from axial_transformers.training.step import train_alone
from experiments.dependencies import influence
from tests.paths import DATA
from tests.small_models import ROUNDED_QUICKLY, random_model, random_values, small_config

LOGGERS = ("", "axial_transformers", "nibabel.global", "pydicom", "tifffile", "PIL", "datasets")


def state_of_process() -> dict[str, Any]:
    """What of the process a user may have set."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    return {
        "torch's generator": torch.get_rng_state().tolist(),
        "NumPy's generator": repr(np.random.get_state()),
        "Python's generator": random.getstate(),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled()),
        "deterministic": (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark),
        "precision": torch.get_float32_matmul_precision(),
        "denormal numbers": float(np.float32(1e-40) * np.float32(1)),
        "floating-point errors": np.geterr(),
        "environment": dict(os.environ),
        "folder": Path.cwd(),
        "warnings": [*warnings.filters],
        "loggers": [(each.level, [*each.handlers], [*each.filters], each.disabled) for each in loggers],
        "signals": [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)],
        "threads of Python": {each.name for each in threading.enumerate() if not each.daemon},
    }


def state_of(model: torch.nn.Module, weights: bool = True) -> dict[str, Any]:
    """Modes, hooks, types and places of the parts of a model; with `weights`, their values too."""
    found: dict[str, Any] = {}
    for name, part in model.named_modules():
        own = {key: value for key, value in vars(part).items() if not key.startswith("_") and key != "training"}
        hooks = [len(part._forward_hooks), len(part._forward_pre_hooks), len(part._backward_hooks)]
        found[f"{name}: mode"] = part.training
        found[f"{name}: attributes"] = {key: id(value) for key, value in own.items()}
        found[f"{name}: hooks"] = hooks
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        found[name] = id(tensor), tensor.dtype, tensor.device, tensor.requires_grad, tensor.grad is None
        if weights:
            found[f"{name}: values"] = hashlib.sha256(tensor.detach().numpy().tobytes()).hexdigest()
    return found


def users_model(dtype: torch.dtype = torch.float32) -> AxialTransformer:
    """A model in training mode; a part of it is frozen, and another one is in evaluation mode."""
    model = random_model(small_config((3, 4), num_values=16, dropout=0.2, values="ordinal"), dtype).train()
    model.embed_value.requires_grad_(False)
    model.inner_decoder.eval()
    return model


def some(model: AxialTransformer, count: int = 2) -> Tensor:
    with torch.device("cpu"):
        return random_values(model, count)


def trained(model: AxialTransformer, folder: Path) -> None:
    config = TrainConfig(steps=3, batch_size=2, evaluate_every=2, sample_every=2, checkpoint_blocks=True)
    x = some(model, 8)

    def evaluate(averaged: AxialTransformer, step: int, fill: Any) -> Any:
        return likelihood.evaluate(averaged, x.numpy(), fill=fill).to_json()

    def sample(averaged: AxialTransformer, step: int) -> None:
        axial.sample(averaged, 1, seed=0)

    examples = examples_from(x.numpy(), num_values=16)
    train(model, examples, config, folder / "run", evaluate=evaluate, sample=sample)


def trained_into_an_error(model: AxialTransformer, folder: Path) -> None:
    def loss(model: AxialTransformer, x: Tensor, **given: Any) -> Tensor:
        axial.random_slice_loss(model, x, **given).backward()
        raise KeyError("of the user's loss")

    config = TrainConfig(steps=3, batch_size=2, checkpoint_blocks=True)
    with pytest.raises(KeyError):
        train(model, examples_from(some(model).numpy(), num_values=16), config, folder / "run", loss=loss)


def refused(call: Callable[..., object]) -> Callable[..., None]:
    """A call that ends in an error in the middle of its work."""

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise KeyError("in the middle")

    def run(model: AxialTransformer, folder: Path) -> None:
        with pytest.raises(KeyError):
            call(model, folder, broken)

    return run


def archived(model: AxialTransformer, folder: Path) -> None:
    axial.decompress(model, axial.compress(model, some(model)))


def files_archived(model: AxialTransformer, folder: Path) -> None:
    save_arrays(folder / "x.npz", some(model).numpy())
    compress_files(model, folder / "x.npz", folder / "x.axl", force=True)
    decompress_files(None, folder / "x.axl", folder / "back.npz")
    axial.open_archive(folder / "x.axl").read()


def saved_and_read(model: AxialTransformer, folder: Path) -> None:
    model.save_pretrained(folder / "model")
    AxialTransformer.from_pretrained(folder / "model")
    AxialTransformer.from_pretrained("fashion_mnist")


def decoded(model: AxialTransformer, folder: Path) -> None:
    noise = decoding.uniform((2, *model.config.shape, 1), seed=0)
    decode(model, NoiseChoice(noise=noise), some(model))


def shown(model: AxialTransformer, folder: Path) -> None:
    pictures.save_grid(folder / "grid.png", some(model).numpy())
    pictures.save_images(folder / "images", some(model).numpy())


def suited(model: AxialTransformer, folder: Path) -> None:
    source = folder / "x.npz"
    save_arrays(source, some(model, 60).numpy())
    run = recipes.of_own_data(str(source))
    recipes.suited(run, load(source, run.data))


CALLS: dict[str, Callable[[AxialTransformer, Path], object]] = {
    "train": trained,
    "train, with an error": trained_into_an_error,
    "sample": lambda model, folder: axial.sample(model, 2, seed=0),
    "sample, with an error": refused(lambda model, folder, broken: axial.sample(model, 2, seed=0, progress=broken)),
    "complete": lambda model, folder: axial.complete(model, some(model), rows=1, count=2, seed=0),
    "bits_per_dim": lambda model, folder: axial.bits_per_dim(model, some(model)),
    "bits_map": lambda model, folder: axial.bits_map(model, some(model)),
    "evaluate": lambda model, folder: likelihood.evaluate(model, some(model).numpy()),
    "compress and decompress": archived,
    "compress, with an error": refused(
        lambda model, folder, broken: axial.compress(model, some(model), progress=broken)
    ),
    "compress_files and decompress_files": files_archived,
    "save_pretrained and from_pretrained": saved_and_read,
    "decode": decoded,
    "influence": lambda model, folder: influence(model, some(model, 1)),
    "score": lambda model, folder: score(model, some(model).numpy()),
    "import_official": lambda model, folder: axial.import_official(DATA / "official_a", heads=4, raw=True),
    "load": lambda model, folder: load("digits", split="test").values[:3],
    "pictures": shown,
    "suited": suited,
}


@pytest.fixture
def quick() -> Iterator[None]:
    with ROUNDED_QUICKLY:
        yield


@pytest.fixture(params=[(torch.float64, "cpu"), (torch.float32, "meta")], ids=str)
def other_defaults(request: pytest.FixtureRequest) -> Iterator[None]:
    dtype, device = request.param
    torch.set_default_dtype(dtype)
    with torch.device(device):
        yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", CALLS)
def test_a_call_leaves_the_process_and_the_model_as_they_were(name, tmp_path):
    model = users_model()
    keeps_weights = not name.startswith("train")
    process, parts = state_of_process(), state_of(model, keeps_weights)
    CALLS[name](model, tmp_path)
    assert state_of_process() == process
    assert state_of(model, keeps_weights) == parts


@pytest.mark.usefixtures("quick", "other_defaults")
@pytest.mark.parametrize("name", CALLS)
def test_a_call_works_whatever_the_default_dtype_and_device_are(name, tmp_path):
    with torch.device("cpu"):
        model = users_model()
    result = CALLS[name](model, tmp_path)
    assert not (isinstance(result, Tensor) and result.is_meta)


def test_a_run_is_the_same_whatever_the_default_dtype_is(tmp_path):
    settings = {"distribution_augmentation": 0.5}
    usual = weights_after(users_model(), tmp_path / "usual", **settings)
    torch.set_default_dtype(torch.float64)
    try:
        other = weights_after(users_model(), tmp_path / "other", **settings)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(usual, other)


def weights_after(model: AxialTransformer, folder: Path, **settings: Any) -> Tensor:
    config = TrainConfig(**{"steps": 4, "batch_size": 4, "learning_rate": 0.01} | settings)
    train(model, examples_from(some(model, 16).numpy(), num_values=16), config, folder)
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_members_of_an_ensemble_that_are_made_and_trained_in_a_loop_differ(tmp_path):
    config = small_config((3, 4), num_values=16, dropout=0.2)
    members = [weights_after(AxialTransformer(config), tmp_path / str(i)) for i in range(3)]
    assert not torch.equal(members[0], members[1])
    assert not torch.equal(members[1], members[2])


def test_dropout_of_runs_in_two_threads_is_that_of_one_alone(tmp_path):
    models = [users_model() for _ in range(3)]
    alone, together = weights_after(models[0], tmp_path / "alone", steps=20), dict[int, Tensor]()

    def run(number: int) -> None:
        together[number] = weights_after(models[number], tmp_path / str(number), steps=20)

    threads = [threading.Thread(target=run, args=[number]) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(alone, together[1])
    assert torch.equal(alone, together[2])


def test_blocks_that_are_computed_again_drop_the_same_numbers(tmp_path):
    once = weights_after(users_model(), tmp_path / "once")
    again = weights_after(users_model(), tmp_path / "again", checkpoint_blocks=True)
    assert torch.equal(once, again)


def test_compiled_blocks_train_in_one_thread_at_a_time():
    with train_alone(TrainConfig(compile=True), torch.device("cpu")):
        with pytest.raises(ValueError, match="thread"), train_alone(TrainConfig(compile=True), torch.device("cpu")):
            pass
        with train_alone(TrainConfig(compile=False), torch.device("cpu")):
            pass
    with train_alone(TrainConfig(compile=True), torch.device("cpu")):
        pass


class StandIn:
    """The generator of a device that this machine lacks."""

    def __init__(self) -> None:
        self.state = 7

    def manual_seed(self, seed: int) -> None:
        self.state = seed


def test_the_generator_of_another_device_is_put_back(monkeypatch):
    module = StandIn()

    @contextmanager
    def fork_rng(devices: list[torch.device], device_type: str) -> Iterator[None]:
        assert (devices, device_type) == ([torch.device("cuda:1")], "cuda")
        before = module.state
        yield
        module.state = before

    monkeypatch.setattr(torch.random, "fork_rng", fork_rng)
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    with dropout_seeded(3, torch.device("cuda:1")):
        assert module.state == 3
    assert module.state == 7


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", [name for name in CALLS if not name.startswith("train")])
def test_a_model_whose_weights_are_all_frozen_does_all_but_train(name, tmp_path):
    CALLS[name](users_model().requires_grad_(False), tmp_path)


def test_a_model_whose_weights_are_all_frozen_is_not_trained(tmp_path):
    with pytest.raises(ValueError, match="frozen"):
        weights_after(users_model().requires_grad_(False), tmp_path / "run")


@pytest.mark.parametrize("values", [{"values": "ordinal"}, {"values": "ordinal", "centred": True}])
def test_values_are_fitted_when_a_model_is_new_and_kept_when_it_is_trained(tmp_path, values):
    model = AxialTransformer(small_config((3, 4), num_values=16, **values))
    spread = float(model.values.spread)
    weights_after(model, tmp_path / "new")
    assert float(model.values.spread) != spread
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    other = examples_from(some(model, 16).numpy() // 4, num_values=16)
    train(model, other, TrainConfig(steps=1, batch_size=4, learning_rate=1e-12), tmp_path / "on")
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=1e-9)


def test_a_model_that_was_trained_by_other_means_keeps_its_head(tmp_path):
    model = AxialTransformer(small_config((3, 4), num_values=16, values="ordinal"))
    with torch.no_grad():
        model.head[1].bias.add_(0.01)
    before = model.head[1].bias.clone()
    weights_after(model, tmp_path / "run", steps=1, learning_rate=1e-12)
    torch.testing.assert_close(model.head[1].bias, before, rtol=0, atol=1e-9)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_that_is_freed_after_a_training_goes_back_to_the_system(tmp_path):
    weights_after(users_model(), tmp_path / "run", steps=1)
    resident = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")  # noqa: E731
    before = resident()
    array = np.ones(2**25)
    assert resident() - before > 2**27
    del array
    assert resident() - before < 2**26
