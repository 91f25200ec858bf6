"""A model folder is read back bitwise, or refused in one line that names the file, before much is allocated."""

import json
import logging
import pickle
import resource
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save, save_file
from torch.nn.utils import parametrizations

from axial_transformers.compression import compress, fingerprint
from axial_transformers.decoding.sampling import sample
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.models import AxialTransformer
from axial_transformers.models.config import MAX_LAYERS
from axial_transformers.storage.model_folders import CONFIG, SHIPPED, WEIGHTS, shipped_names
from tests.small_models import PAIRWISE, random_model, random_values, small_config, small_model

MEGABYTE = 1 << 20
FIVE = small_config((5,))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder, of a model with all its parts."""
    random_model(small_config((2, 3), 2, num_classes=3)).float().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refusal(folder: Path, error: type[Exception] = ValueError) -> str:
    """The line with which the folder is refused; little memory was taken, and the folder left as it was."""
    before = content(folder) if folder.is_dir() else None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(error) as caught:
        AxialTransformer.from_pretrained(folder)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) * 1024 < 300 * MEGABYTE
    assert before == (content(folder) if folder.is_dir() else None)
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 1000
    assert str(folder) in line
    return line


def edit(folder: Path, **fields: object) -> None:
    config = json.loads((folder / CONFIG).read_text()) | fields
    (folder / CONFIG).write_text(json.dumps({name: value for name, value in config.items() if value is not ...}))


@pytest.mark.parametrize("config", PAIRWISE.values(), ids=PAIRWISE)
def test_a_model_is_read_back_bitwise(config, tmp_path):
    model = random_model(config).float().train()
    for name in ("one", "two"):
        model.save_pretrained(tmp_path / name)
    assert content(tmp_path / "one") == content(tmp_path / "two")
    loaded = AxialTransformer.from_pretrained(tmp_path / "one")
    assert loaded.config == config
    assert not loaded.training
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    assert fingerprint(loaded) == fingerprint(model)


def test_a_model_without_values_is_refused_wherever_they_are_needed():
    model = random_model(FIVE).to("meta")
    x = random_values(model, 2)
    for use in (lambda: model(x), lambda: bits_per_dim(model, x), lambda: sample(model, 2), lambda: compress(model, x)):
        with pytest.raises(ValueError, match="meta"):
            use()


def test_a_model_folder_is_replaced_only_if_asked_and_if_it_holds_nothing_else(folder, monkeypatch):
    before, model, new = content(folder), random_model(FIVE).float(), folder.parent / "new"
    with pytest.raises(FileExistsError, match="exists already"):
        model.save_pretrained(folder)
    (folder.parent / "link").symlink_to(folder)
    for place, name in ((folder, "train.json"), (folder, CONFIG), (folder.parent / "link", WEIGHTS)):
        (folder / name).write_bytes(b"{}")
        with pytest.raises(FileExistsError, match="more"):
            model.save_pretrained(place, overwrite=True)
        (folder / name).unlink()
        for file, octets in before.items():
            (folder / file).write_bytes(octets)
    with monkeypatch.context() as patch:
        patch.setattr("axial_transformers.storage.model_folders.save_file", lambda *_: 1 / 0)
        for target in (folder, new):
            with pytest.raises(ZeroDivisionError):
                model.save_pretrained(target, overwrite=True)
    assert content(folder) == before
    new.mkdir()
    for target in (folder, new):
        model.save_pretrained(target, overwrite=target == folder)
        assert AxialTransformer.from_pretrained(target).config == FIVE
    assert {path.name for path in folder.parent.iterdir()} == {"model", "new", "link"}


def header(tensors: object, length: int | None = None) -> bytes:
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text


def one(**fields: object) -> bytes:
    return header({"head.0.bias": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]} | fields}) + bytes(32)


TERA = 1 << 40
NONE = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
SHARED = {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}
HOSTILE = (
    header({}, length=2**64 - 1),
    one(shape=[TERA], data_offsets=[0, 4 * TERA]),
    one(shape=[TERA], data_offsets=[0, 0]),
    one(shape=[TERA, TERA, TERA]),
    one(shape=[-1]),
    header({"a": SHARED, "b": SHARED}) + bytes(32),
    one(data_offsets=[32, 64]) + bytes(32),
    header([1, 2]),
    pickle.dumps({"head.0.bias": torch.zeros(8)}),
    header({"dtype": "F32", "x": "y" * (9 * MEGABYTE)}),
    header({f"{i}\n": NONE for i in range(100)}),
    one(dtype="X\n" * 9999),
    header({"head.0.bias": {**NONE, "shape": [0] * 100_000}}),
)


def test_weights_that_are_hostile_cut_off_or_missing_are_refused(folder):
    whole = (folder / WEIGHTS).read_bytes()
    cut = [whole[:kept] for kept in (0, 4, 8, 100, len(whole) // 2, len(whole) - 1)]
    for weights in (*HOSTILE, *cut):
        (folder / WEIGHTS).write_bytes(weights)
        assert f"{WEIGHTS}: " in refusal(folder)
    assert f"{WEIGHTS}: damaged or cut off" in refusal(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"head.0.bias": "../../../etc/passwd"}}')
    (folder / WEIGHTS).unlink()
    assert f"{WEIGHTS}: missing" in refusal(folder, FileNotFoundError)


def test_weights_that_are_not_those_of_the_configuration_are_told_by_name(folder):
    weights = load((folder / WEIGHTS).read_bytes())  # not mapped: the file is written again
    bias = weights["head.0.bias"].clone()
    save_file({name.replace("head", "haed"): tensor for name, tensor in weights.items()}, folder / WEIGHTS)
    assert "'head.0.weight' is 'missing'" in refusal(folder)
    for said, tensor in [
        ("'head.0.bias' is [9], not [8]", torch.zeros(9)),
        ("head.0.bias holds I64 values", bias.long()),
        ("head.0.bias holds NaN or infinity", (bias + torch.nan).half()),
        ("head.0.bias holds NaN or infinity", (bias + torch.inf).bfloat16()),
        ("head.0.bias holds NaN or infinity", (bias - torch.inf).double()),
    ]:
        save_file(weights | {"head.0.bias": tensor}, folder / WEIGHTS)
        assert said in refusal(folder)
    content = save(weights | {"head.0.bias": bias.long()}).replace(b'"I64"', b'"C64"')
    (folder / WEIGHTS).write_bytes(content)
    said = refusal(folder)
    assert "head.0.bias holds C64 values" in said or "InvalidHeader" in said  # safetensors before 0.8 has no such type


def test_weights_are_read_as_float32_or_where_one_is_float64_as_that(folder):
    weights = load((folder / WEIGHTS).read_bytes())  # not mapped: the file is written again
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        stored = {name: tensor.to(dtype) for name, tensor in weights.items()}
        for some in (stored, weights | {"head.0.bias": stored["head.0.bias"]}):
            save_file(some, folder / WEIGHTS)
            read = AxialTransformer.from_pretrained(folder).state_dict()
            assert {tensor.dtype for tensor in read.values()} == {
                max(dtype, torch.float32, key=lambda kind: kind.itemsize)
            }
            assert all(torch.equal(read[name], tensor.to(read[name].dtype)) for name, tensor in some.items())


def test_links_within_the_folder_are_followed_and_those_out_of_it_refused(folder, tmp_path):
    for file in (CONFIG, WEIGHTS):
        (folder / file).rename(folder / file[::-1])
        (folder / file).symlink_to(file[::-1])
    (tmp_path / "latest").symlink_to(folder)
    assert AxialTransformer.from_pretrained(tmp_path / "latest").config.shape == (2, 3)
    for file in (WEIGHTS, CONFIG):
        (folder / file[::-1]).rename(tmp_path / file)
        (folder / file).unlink()
        (folder / file).symlink_to(f"../{file}")
        assert f"{file} is a link out of {folder}: if you trust it, put what it leads to in its pl" in refusal(folder)


def test_the_hubs_cache_may_link_to_its_blobs_and_no_further(folder, tmp_path):
    snapshot, blobs = tmp_path / "models--x" / "snapshots" / "0123abcd", tmp_path / "models--x" / "blobs"
    snapshot.mkdir(parents=True)
    folder.rename(blobs)
    for file in (CONFIG, WEIGHTS):
        (snapshot / file).symlink_to(Path("../../blobs") / file)
    assert AxialTransformer.from_pretrained(snapshot).config.shape == (2, 3)
    (blobs / WEIGHTS).rename(tmp_path / "elsewhere")
    (blobs / WEIGHTS).symlink_to(tmp_path / "elsewhere")
    assert "is a link out of" in refusal(snapshot)


def test_a_folder_without_a_model_is_refused(folder, tmp_path):
    (tmp_path / "a.file").write_text("")
    (folder / CONFIG).unlink()
    for place in ("nothing", "a.file", "deeper/than/the/hub", "model"):
        assert "no model folder there" in refusal(tmp_path / place, FileNotFoundError)


EDITED = [
    ({"model": "axial_resnet"}, "not the configuration of a model called 'axial_transformer'"),
    ({"shape": ...}, "missing fields ['shape']"),
    ({"wdith": 8}, "unknown fields ['wdith']"),
    ({"dim": "8"}, "dim is '8', not int"),
    ({"dim": True}, "dim"),
    ({"dim": 10**9, "heads": 1}, "dim must be at least 1 and"),
    ({"shape": [10**400]}, "shape"),
    ({"heads": 3}, "dim 8 must be a multiple of model.heads 3"),
    ({"mlp_ratio": float("nan")}, "mlp_ratio"),
    ({"outer_layers": [2.0]}, "outer_layers"),
    ({"encoder_layers": 200}, "weights"),
    ({"inner_layers": MAX_LAYERS - 4}, "1024 layers have at least 12288 tensors, not "),
    ({"layout": ["rows"]}, "layout"),
    ({"known_channels": "x" * 100_000}, "known_channels"),
    ({"x" * 100_000: 1}, "unknown"),
]


def test_what_is_not_a_configuration_or_an_edited_one_is_refused_by_its_field(folder):
    right = (folder / CONFIG).read_bytes()
    for text in ("", "{", "[]", "\xff", "[" * 100_000, '{"model": ' * 50_000, " " * (2 << 20)):
        (folder / CONFIG).write_bytes(text.encode("latin-1"))
        assert CONFIG in refusal(folder)
    for fields, named in EDITED:
        (folder / CONFIG).write_bytes(right)
        edit(folder, **fields)
        assert named in refusal(folder).replace(str(folder), "", 1)


def test_the_models_of_the_package_are_read_by_name_as_float32_and_are_small(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "axial_transformers")
    monkeypatch.chdir(tmp_path)
    assert {"fashion_mnist", "photos32", "clips32"} <= {*shipped_names()}
    assert sum(path.stat().st_size for path in SHIPPED.rglob("*")) < 9e6
    for name in shipped_names():
        model = AxialTransformer.from_pretrained(name)
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
        assert caplog.messages[-1] == f"{name}: the model that comes with the package"
    small_model((2, 3)).save_pretrained("fashion_mnist")
    assert AxialTransformer.from_pretrained("fashion_mnist").config.shape == (2, 3)
    assert caplog.messages[-1] == "fashion_mnist: the folder here, not the model that comes with the package"


def compile_a_part(model):
    model.inner_decoder = torch.compile(model.inner_decoder, backend="eager")


def tie(model):
    model.outer_decoders[0].blocks[0].feedforward.norm.weight = model.head[0].weight


@pytest.mark.parametrize("change", [compile_a_part, tie])
def test_what_torch_adds_to_a_model_is_left_out_of_its_folder(tmp_path, change):
    model = random_model(small_config((2, 3), 2)).eval()
    change(model)
    model.save_pretrained(tmp_path / "model")
    x = random_values(model, 1)
    torch.testing.assert_close(AxialTransformer.from_pretrained(tmp_path / "model")(x), model(x))


REFUSED = [
    (lambda model: parametrizations.weight_norm(model.head[1]), r"'head\.1\.weight' is 'missing'"),
    (lambda model: model.add_module("extra", torch.nn.Linear(2, 3)), r"'extra\.bias' is \[3\], not unknown"),
    (lambda model: setattr(model, "head", torch.nn.Linear(2, 3)), r"head\.0\.weight"),
    (lambda model: model.head[0].weight.data.fill_(torch.nan), r"head\.0\.weight holds NaN"),
    (lambda model: model.to("meta"), "the model is on the meta device, without values"),
]


def test_what_could_not_be_read_is_not_written(tmp_path):
    for made, says in REFUSED:
        model = random_model(small_config((2, 3), 2))
        made(model)
        with pytest.raises(ValueError, match=rf"^[^\n]*{says}[^\n]*$"):
            model.save_pretrained(tmp_path / "model")
    assert not [*tmp_path.iterdir()]
