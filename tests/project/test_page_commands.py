"""Every `axial` command of a page runs, on tiny data and with few steps; pages quote what was measured."""

import json
import re
import shlex
import shutil
from pathlib import Path

import nibabel
import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from axial_transformers import __version__ as version, cli
from tests.conftest import TINY, Axial
from tests.paths import ROOT
from tests.project.test_docs import PAGES, commands
from tests.scan_writer import make_scan
from tests.shard_writer import pictures as png_members, write
from tests.small_models import random_model, small_config
from tests.tfrecord_writer import video_record, write_records

FEW_STEPS = ["--training.steps", "2", "--training.batch-size", "2", "--samples", "0", "--validate-on", "2"]
WITHOUT_ARGUMENTS = {"recipes"}
PLACEHOLDER = r"(hf:)?[A-Z_]{3,}(/[A-Z]+)?(\.npz)?"
FIRST = ["README.md", "docs/quickstart.md"]
PAPER = (ROOT / "docs" / "how-to" / "reproduce_the_paper.md").read_text()
OVERRIDES = {name: shlex.split(words) for name, words in re.findall(r"^\| ([^|]+) \| `(--[^`]+)` \|$", PAPER, re.M)}
"""What makes the trainings of the paper small, as the page on them says."""
EXEMPT = {
    r"demo": "tests/cli/test_demo.py",
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
    for name in sorted(pages, key=lambda name: ("reproduce" not in name, name not in FIRST, name)):
        for verb, *words in (each[1:] for each in commands(pages[name]) if each[0] == "axial"):
            line = " ".join([verb, *words])
            exempt = any(re.fullmatch(pattern, line) for pattern in EXEMPT)
            if not (is_mention(verb, words) or exempt or line in seen):
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
    for name in ("my_photos", "new_photos", "my_images", "scans", "varied", "photos/test", "flat", "kodak_crops"):
        (folder / name).mkdir(parents=True)
        for i, photo in enumerate(photos if name.startswith(("my", "scans")) else photos[:2]):
            Image.fromarray(photo).save(folder / name / f"{'cat' if i == 0 else i}.png")
    (folder / "gray_photos").mkdir()
    for i in range(12):
        Image.fromarray(ramps(1, 32, 32)[0]).save(folder / "gray_photos" / f"{i}.png")
    (folder / "scans_16bit").mkdir()
    for i in range(12):
        Image.fromarray(ramps(1, 9, 8)[0].astype(np.uint16) * 200 + i).save(folder / "scans_16bit" / f"{i}.png")
    np.savez(folder / "fashion_mnist_train.npz", images=ramps(20, 28, 28))
    for name in ("fashion_mnist_test", "mnist_t10k", "fashion_mnist_all", "fashion_mnist_20000"):
        np.savez(folder / f"{name}.npz", images=ramps(2, 28, 28))
    np.savez(folder / "digits.npz", images=ramps(20, 8, 8))
    np.save(folder / "images.npy", ramps(12, 8, 8))
    np.savez(folder / "photo_tiles.npz", images=ramps(2, 32, 32, 3))
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
    (folder / "niivue-images").mkdir()
    volumes = {"brain": (32, 32, 32), "sound": (32, 32, 32), "suspect": (32, 16, 8), "scans/mri": (16, 9, 16, 2)}
    volumes |= dict.fromkeys(("niivue-images/CT_pitch", "niivue-images/chris_PD"), (16, 16, 8))
    for name, shape in volumes.items():
        nibabel.save(nibabel.Nifti1Image(ramps(*shape).astype(np.int16), np.eye(4)), folder / f"{name}.nii.gz")
    (folder / "halves").mkdir()
    for name, shape in VOLUMES.items():
        np.save(folder / name, ramps(*shape).astype(np.int16))
    np.save(folder / "halves" / "elevation.npy", ramps(32, 62).astype(np.int16))
    tifffile.imwrite(folder / "scans" / "nuclei.tif", ramps(16, 8, 57))
    for part in ("train", "val"):
        for i in range(2):
            write(folder / "shards" / f"{part}-{i:03d}.tar", png_members(ramps(6, 64, 64, 3)))
    for name, shape, channels in (("gray", (28, 28), 1), ("volume", (4, 4, 4), 1), ("imagenet32", (8, 8), 3)):
        model = random_model(small_config(shape, channels=channels, num_values=256), torch.float32)
        model.save_pretrained(folder / "models" / name)
    make_scan(folder / "head.nii.gz", ramps(1, 5, 6, 7)[0])
    shutil.copytree(trained, folder / "models" / "run")
    of_the_paper(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert cli.main(["train", "my_photos", *TINY, *FEW_STEPS, "--out", "models/colour"]) == 0
    return folder


def of_the_paper(folder: Path) -> None:
    """Stand-ins of downsampled ImageNet, of BAIR robot pushing and of the authors' checkpoints."""
    for size in (32, 64):
        for part, count in (("train", 5), ("valid", 3)):
            images = folder / f"imagenet{size}" / f"{part}_{size}x{size}"
            images.mkdir(parents=True)
            for i, pixels in enumerate(ramps(count, 8, 8, 3)):
                Image.fromarray(pixels).save(images / f"{i:07d}.png")
        batches = folder / f"imagenet{size}_npz"
        batches.mkdir()
        for name, count in {"train_data_batch_1": 3, "train_data_batch_2": 2, "val_data": 2}.items():
            planes = ramps(count, 3, 8, 8).reshape(count, -1)
            labels = np.arange(1000 - count, 1000) + 1
            np.savez(batches / f"{name}.npz", data=planes, labels=labels, mean=planes.mean(0))
        shutil.copytree(ROOT / "tests" / "data" / "official_e", folder / f"logdir{size}")
    (folder / "imagenet32_tfds").mkdir()
    for part in ("train", "validation"):
        np.savez(folder / "imagenet32_tfds" / f"{part}.npz", images=ramps(5, 8, 8, 3))
    (folder / "softmotion30_44k" / "train").mkdir(parents=True)
    (folder / "softmotion30_44k" / "test").mkdir()
    for i in range(6):
        records = map(video_record, ramps(2, 6, 64, 64, 3))
        write_records(folder / "softmotion30_44k" / ("test" if i == 5 else "train") / f"traj_{i}.tfrecords", records)


def provide(words: list[str], data: Path, axial: Axial) -> None:
    """Put the runs, models and archives that a command reads and no command before it has made in their place."""
    begun = words[words.index("--from") + 1] if "--from" in words else " ".join(words[1:2])
    if re.match(r"(runs|models|demo)/\w+$", begun) and not Path(begun).exists():
        kinds = {"fashion_mnist": "gray", "digits": "run", "head": "volume"}
        kind = Path(begun).name
        kind = kinds.get(kind, kind if kind in ("run", "imagenet32") else "colour")
        shutil.copytree(data / "models" / kind, begun)
    archive = next((word for word in words if word.endswith(".axl")), "")
    if words[0] == "decompress" and not Path(archive).exists():
        source = "my_photos/cat.png" if archive == "one.axl" else "my_photos"
        model = data / "models" / "colour" if words[1] == archive else words[1]
        assert axial("compress", model, source, archive, "--force").status == 0


def made_small(words: list[str], page: str) -> list[str]:
    """The command, with a small model, few steps and few samples."""
    fits = words[0] == "compress" and (len(words) == 3 or words[3].startswith("--"))
    words = [*words, "--minutes", "0"] if fits and "--minutes" not in words else words
    words = [
        "0.02" if before in ("--minutes", "--training.minutes") else word for before, word in zip(["", *words], words)
    ]
    if "reproduce" in page:
        return of_the_paper_small(words)
    if page in FIRST and words[0] == "sample":
        return words
    if "--count" in words:
        words[words.index("--count") + 1] = "1"
    elif words[0] == "sample":
        words += ["--count", "1"]
    elif words[0] == "compress":
        words += ["--force"]
    elif words[:2] in (["evaluate", "demo/run"], ["complete", "demo/run"]):
        words += ["digits"]
    if words[0] == "train" and words[1].startswith("runs/"):
        return ["2" if before == "--training.steps" else word for before, word in zip(["", *words], words)]
    if words[0] != "train":
        return words
    few = [*FEW_STEPS, "--training.accumulate", "1"]
    if "--from" in words:
        return [*words, *few]
    depth = TINY.index("--model.outer-layers")
    layers = [] if "--model.outer-layers" in words else TINY[depth:]
    if words[1] == "my_videos/":
        words = [{"16": "3", "32": "8"}.get(word, word) for word in words]
    if words[1] in ("clips32", "my_videos/", *VOLUMES) or words[1].endswith((".nii.gz", ".tif")):  # of three axes
        layers = ["--model.outer-layers", "3", "--model.outer-layers", "2"]
    return [*words, *TINY[:depth], *layers, *few]


def of_the_paper_small(words: list[str]) -> list[str]:
    """A command with the overrides that the page states, but of nothing that it sets itself."""
    if words[0] == "import-official":
        return [*words, *OVERRIDES["the authors' checkpoints"]]
    if words[0] != "train":
        return words
    kind = "of BAIR" if words[1] == "bair" else "of ImageNet"
    return [*words, *OVERRIDES["every training"], *OVERRIDES[kind]]


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
        done = axial(*made_small(words, page))
        assert done.status == 0, (words, done.err)
        if words[0] == "evaluate" and "--json" in words:
            assert 0 < json.loads(done.out.splitlines()[-1])["bits_per_dim"] < 30
    for before, after in {"my_photos": "again", "sampled": "sampled_again"}.items() if page in FIRST else ():
        for file in Path(before).iterdir() if Path(after).exists() else ():
            with Image.open(file) as stored, Image.open(Path(after) / file.name) as restored:
                assert np.array_equal(np.asarray(stored), np.asarray(restored))


def test_every_measured_number_of_the_readme_is_on_the_results_or_the_benchmarks_page():
    readme, *known = [(ROOT / page).read_text() for page in ("README.md", "docs/results.md", "docs/benchmarks.md")]
    stated = re.findall(r"\d+\.\d{3}\b|\d+,\d{3}\b", re.sub(r"```.*?```|\]\([^)]*\)", "", readme, flags=re.DOTALL))
    assert [number for number in stated if number not in "".join(known)] == []
    assert "2.714" in stated
    assert f"Version {version}:" in readme
