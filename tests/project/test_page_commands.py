"""Every `axial` command of a page or a model card runs, on tiny data, with few steps; and pages quote what it says."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

import axial_transformers
from axial_transformers import cli, recipes
from tests.conftest import TINY, Axial
from tests.paths import ROOT
from tests.project.test_docs import PACKAGE, PAGES, commands
from tests.project.test_readme import FEW_STEPS, fitted_briefly
from tests.scan_writer import make_scan
from tests.shard_writer import pictures as png_members
from tests.shard_writer import write
from tests.small_models import random_model, small_config

WITHOUT_ARGUMENTS = {"recipes"}
PLACEHOLDER = r"(hf:)?[A-Z_]{3,}(/[A-Z]+)?(\.npz)?"
ELSEWHERE = {
    "README.md": "tests/project/test_readme.py",
    "docs/quickstart.md": "tests/project/test_readme.py",
    "docs/how-to/reproduce_the_paper.md": "tests/project/test_reproduce.py",
}
"""Pages whose commands another test runs, in their order."""
EXEMPT = {
    r"demo\b.*": "tests/cli/test_demo.py",
    r"doctor": "tests/cli/test_doctor.py",
    r"studio .*": "needs gradio, in an environment of its own: tests/studio/test_studio_in_browser.py",
    r"push .*|sample alice/.*": "needs the hub: tests/storage/test_hub.py has a stand-in",
    r"train digits_small .*": "a recipe that the page tells how to write",
}
"""Commands that run nowhere here, by pattern, and why."""


def is_mention(verb: str, words: list[str]) -> bool:
    """Whether a command is named, with nothing or a placeholder in place of its arguments."""
    if any(re.fullmatch(PLACEHOLDER, word) for word in words):
        return True
    return verb not in WITHOUT_ARGUMENTS and (not words or (verb != "inspect" and words[0].startswith("-")))


def cases() -> dict[str, list[list[str]]]:
    """The commands to run by page, each on the first page that has it."""
    runs: dict[str, list[list[str]]] = {}
    seen = set()
    pages = {str(page.relative_to(ROOT)): page for page in PAGES}
    for name in sorted(pages, key=lambda name: name not in ELSEWHERE):
        for _, verb, *words in (each for each in commands(pages[name]) if each[0] == "axial"):
            line = " ".join([verb, *words])
            elsewhere = name in ELSEWHERE or any(re.fullmatch(pattern, line) for pattern in EXEMPT)
            if not (is_mention(verb, words) or elsewhere or line in seen):
                runs.setdefault(name, []).append([verb, *words])
            seen.add(line)
    return runs


RUNS = cases()
VOLUMES = {
    "spectra.npy": (16, 8, 200), "scans/fields.npy": (32, 8, 200), "halves/diffusion.npy": (5, 16, 128),
}  # fmt: skip


def ramps(count: int, *shape: int) -> np.ndarray:
    """Smooth images uint8 [count, *shape]."""
    return (np.arange(count * np.prod(shape)).reshape(count, *shape) // 7 % 256).astype(np.uint8)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, trained: Path) -> Path:
    """A folder with tiny stand-ins of all files that pages name."""
    folder = tmp_path_factory.mktemp("pages")
    photos = ramps(12, 32, 32, 3)
    for name in ("my_photos", "new_photos", "my_images", "scans", "varied", "photos/test", "imagenet32/valid_32x32"):
        (folder / name).mkdir(parents=True)
        for i, photo in enumerate(photos if name.startswith(("my", "scans")) else photos[:2]):
            Image.fromarray(photo).save(folder / name / f"{'cat' if i == 0 else i}.png")
    (folder / "scans_16bit").mkdir()
    for i in range(12):
        Image.fromarray(ramps(1, 9, 8)[0].astype(np.uint16) * 200 + i).save(folder / "scans_16bit" / f"{i}.png")
    np.savez(folder / "fashion_mnist_train.npz", images=ramps(20, 28, 28))
    for name in ("fashion_mnist_test", "mnist_t10k", "fashion_mnist_all", "fashion_mnist_20000"):
        np.savez(folder / f"{name}.npz", images=ramps(2, 28, 28))
    np.savez(folder / "digits.npz", images=ramps(20, 8, 8))
    np.savez(folder / "kodak_validation.npz", crops32=ramps(2, 32, 32, 3))
    for name, count in (("clips64_train", 20), ("clips64_test", 1)):
        np.savez(folder / f"{name}.npz", images=ramps(count, 16, 64, 64, 3))
    np.savez(folder / "my_clips_of_32x32.npz", images=ramps(1, 16, 32, 32, 3))
    for name, count, side in (("my_videos", 16, 33), ("short_clips", 3, 8)):
        for i, clip in enumerate(ramps(12, count, side, 8 + side, 3)):
            (folder / name / f"{i}").mkdir(parents=True)
            for j, frame in enumerate(clip):
                Image.fromarray(frame).save(folder / name / f"{i}" / f"{j}.png")
    (folder / "tokens").mkdir()
    for name, count in (("codes", 20), ("test_codes", 2)):
        np.save(folder / "tokens" / f"{name}.npy", np.arange(count * 49, dtype=np.int16).reshape(count, 7, 7) % 512)
    (folder / "shards").mkdir()
    for name, shape in (("brain", (32, 32, 32)), ("scans/mri", (16, 9, 16, 2))):
        nibabel.save(nibabel.Nifti1Image(ramps(*shape).astype(np.int16), np.eye(4)), folder / f"{name}.nii.gz")
    (folder / "halves").mkdir()
    for name, shape in VOLUMES.items():
        np.save(folder / name, ramps(*shape).astype(np.int16))
    np.save(folder / "halves" / "elevation.npy", ramps(32, 62).astype(np.int16))
    tifffile.imwrite(folder / "scans" / "nuclei.tif", ramps(16, 8, 57))
    for part in ("train", "val"):
        for i in range(2):
            write(folder / "shards" / f"{part}-{i:03d}.tar", png_members(ramps(6, 64, 64, 3)))
    gray = random_model(small_config((28, 28), num_values=256), torch.float32)
    gray.save_pretrained(folder / "models" / "gray")
    volume = random_model(small_config((4, 4, 4), num_values=256), torch.float32)
    volume.save_pretrained(folder / "models" / "volume")
    make_scan(folder / "head.nii.gz", ramps(1, 5, 6, 7)[0])
    shutil.copytree(trained, folder / "models" / "digits")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert cli.main(["train", "my_photos", *TINY, *FEW_STEPS, "--out", "models/colour"]) == 0
    return folder


def provide(words: list[str], data: Path, axial: Axial) -> None:
    """Put the runs, models and archives that a command reads and no command before it has made in their place."""
    if re.match(r"(runs|models|demo)/\w+$", " ".join(words[1:2])) and not Path(words[1]).exists():
        kind = {"fashion_mnist": "gray", "digits": "digits", "run": "digits", "head": "volume"}.get(
            Path(words[1]).name, "colour"
        )
        shutil.copytree(data / "models" / kind, words[1])
    archive = next((word for word in words if word.endswith(".axl")), "")
    if words[0] == "decompress" and not Path(archive).exists():
        source = "my_photos/cat.png" if archive == "one.axl" else "my_photos"
        model = data / "models" / "colour" if words[1] == archive else words[1]
        assert axial("compress", model, source, archive, "--force").status == 0


def made_small(words: list[str]) -> list[str]:
    """The command, with a small model, few steps and few samples."""
    words = fitted_briefly(words)
    if "--count" in words:
        words[words.index("--count") + 1] = "1"
    elif words[0] == "sample":
        words += ["--count", "1"]
    elif words[0] == "compress":
        words += ["--force"]
    if words[0] != "train" or words[1].startswith("runs/"):
        return words
    few = [*FEW_STEPS, "--samples", "0", "--training.accumulate", "1"]
    if "--from" in words:
        return [*words, *few]
    depth = TINY.index("--model.outer-layers")
    layers = [] if "--model.outer-layers" in words else TINY[depth:]
    if words[1] == "my_videos/":
        words = [{"16": "3", "32": "8"}.get(word, word) for word in words]
    if words[1] in ("clips32", "my_videos/", *VOLUMES) or words[1].endswith((".nii.gz", ".tif")):  # of three axes
        layers = ["--model.outer-layers", "3", "--model.outer-layers", "2"]
    return [*words, *TINY[:depth], *layers, *few]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNS)
@pytest.mark.usefixtures("no_hub")
def test_the_commands_of_a_page_run(page: str, data: Path, home: Path, axial: Axial):
    for path in data.iterdir():
        if path.name != "models":
            (home / path.name).symlink_to(path)
    for words in RUNS[page]:
        if words[0] == "train" and "runs/" not in words[1]:  # another command of the page may have begun it
            shutil.rmtree(Path("runs") / re.split(r"[^\w]", Path(words[1]).name)[0], ignore_errors=True)
        provide(words, data, axial)
        done = axial(*made_small(words))
        assert done.status == 0, (words, done.err)


def test_every_exemption_is_of_a_command_that_a_page_has():
    every = [" ".join(words) for page in PAGES for program, *words in commands(page) if program == "axial"]
    assert [pattern for pattern in EXEMPT if not any(re.fullmatch(pattern, line) for line in every)] == []
    assert sum(map(len, RUNS.values())) >= 80


@pytest.mark.parametrize("card", sorted(PACKAGE.glob("pretrained/*/README.md")), ids=lambda card: card.parent.name)
def test_a_card_quotes_the_parameters_and_bytes_of_its_model(card: Path):
    model = axial_transformers.AxialTransformer.from_pretrained(card.parent)
    parameters, size = sum(p.numel() for p in model.parameters()), (card.parent / "model.safetensors").stat().st_size
    assert f"| model | {parameters:,} parameters, 16 bits each" in card.read_text()
    assert f"without the weights ({size:,} bytes)" in card.read_text()
    results = (ROOT / "docs" / "results.md").read_text()
    assert f"{size:,}" in results or card.parent.name == "digits"
    assert f"`{card.parent.name}`, {parameters / 1e6:.2f} M" in results


def test_the_page_on_the_paper_quotes_the_parameters_of_its_models():
    page = " ".join((ROOT / "docs" / "explanation" / "the_paper_and_the_code.md").read_text().split())
    recipe, released = recipes.NAMED["imagenet64"]().model, recipes.NAMED["imagenet64_released"]().model
    with torch.device("meta"):
        for config in (recipe, released, replace(recipe, mlp_ratio=4.0)):
            model = axial_transformers.AxialTransformer(config)
            assert f"{sum(p.numel() for p in model.parameters()):,}" in page
