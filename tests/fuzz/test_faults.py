"""Commands that are killed, or reach a limit of memory or file size, leave whole outputs or none, and work again.

    pytest -m slow tests/fuzz/test_faults.py

After each fault every output is what the command makes undisturbed, or is not there; an error is one line and leaves
nothing in part; the same command without the fault makes the undisturbed outputs. Where memory ends inside C++, that
library aborts the process: it says so in words of its own, and a hidden file in part may stay.
"""

import os
import resource
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from PIL import Image

from axial_transformers import cli
from axial_transformers.data import load
from axial_transformers.training.run_state import RunState
from tests.conftest import TINY
from tests.fuzz.processes import Forked, address_space, limit
from tests.paths import DATA

pytestmark = pytest.mark.slow
COMMANDS = {
    "train": "train pictures --training.steps 12 --training.save-every 3 --training.evaluate-every 5 --samples 2"
    " --out run --training.sample-every 6 --training.batch-size 4 --validate-on 4 --data.validation-fraction 0.25",
    "score": "score model pictures --out new.csv --heat-maps new",
    "sample": "sample model --count 8 --out new.npz",
    "complete": "complete model images.npz --rows 4 --examples 4 --out new.npz",
    "compress": "compress model pictures new.axl --force",
    "decompress": "decompress model pictures.axl new",
    "import": f"import-official {DATA / 'official_c'} --out new --raw --heads 2",
}
GIVEN = ("images.npz", "model", "pictures", "pictures.axl")
FAULTS = {
    "kill": (-signal.SIGKILL,), "terminate": (-signal.SIGTERM, 130, 143), "file size": (), "memory": (-signal.SIGABRT,),
}  # fmt: skip
"""Statuses besides 0 and 2."""
TIMES = 3
"""Faults of each kind for each command."""
MEMORY = 1 << 28
"""Bytes that no command needs, beyond those of the process that it was forked from."""


class Bench:
    """A folder with what the commands read, and what each writes undisturbed, after so many seconds."""

    def __init__(self, place: Path) -> None:
        self.place, self.outputs, self.seconds = place, dict[str, dict[str, bytes]](), dict[str, float]()

    def start(self, words: list[str], before: Callable[[], None] = lambda: None) -> Forked:
        def work() -> None:
            os.chdir(self.place)
            before()
            os._exit(cli.main(words))

        return Forked(work)

    def succeed(self, words: list[str]) -> None:
        status, said = self.start(words).wait()
        assert status == 0, said

    def written(self) -> dict[str, bytes]:
        """Return all outputs. Of a run: its newest checkpoint, which is sound as what else is there."""
        run = self.place / "run"
        for folder in run.glob("checkpoints/step-*"):
            RunState.read(folder)
        newest = max(run.glob("checkpoints/step-*"), default=run)
        found = [*newest.glob("*.safetensors"), *run.glob("model.safetensors")]
        found += [file for path in self.place.glob("new*") for file in (path, *path.rglob("*")) if file.is_file()]
        return {str(file.relative_to(self.place)): file.read_bytes() for file in found}

    def clear(self) -> None:
        """Remove all but what the commands read."""
        for path in self.place.iterdir():
            if path.name not in GIVEN:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def words_of(name: str) -> list[str]:
    return [*COMMANDS[name].split(), *(TINY if name == "train" else [])]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("place")
    found = Bench(place)
    (place / "pictures").mkdir()
    values = load("digits", split="test").values[:24, ..., 0] * 15
    for i, pixels in enumerate(values):
        Image.fromarray(pixels).save(place / f"pictures/{i:02d}.png")
    np.savez(place / "images.npz", images=values[:12])
    found.succeed([*words_of("train"), "--out", "model"])
    found.succeed(["compress", "model", "pictures", "pictures.axl", "--force"])
    for name in COMMANDS:
        begun = time.monotonic()
        found.succeed(words_of(name))
        found.seconds[name], found.outputs[name] = time.monotonic() - begun, found.written()
        found.clear()
    return found


def disturbed(bench: Bench, name: str, fault: str, draw: Random) -> Forked:
    """Return the process of a command that has met a fault, or has ended before it."""
    if fault == "file size":
        largest = max(map(len, bench.outputs[name].values()))
        return bench.start(words_of(name), lambda: limit(resource.RLIMIT_FSIZE, int(largest ** draw.random())))
    if fault == "memory":
        most = address_space() + int(MEMORY * draw.random() ** 2)
        return bench.start(words_of(name), lambda: limit(resource.RLIMIT_AS, most))
    forked = bench.start(words_of(name))
    process = forked.process
    if draw.random() < 0.5:  # while something is there in part
        while not any(bench.place.rglob("*.part*")) and process.is_alive():
            time.sleep(1e-4)
        process.join(draw.random() * 0.01)
    else:
        process.join(draw.random() * bench.seconds[name])
    process.kill() if fault == "kill" else process.terminate()
    return forked


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", COMMANDS)
def test_outputs_are_whole_or_missing_after_a_fault_and_the_next_command_makes_them(bench, name, fault):
    draw = Random()
    for _ in range(TIMES):
        bench.clear()
        status, text = disturbed(bench, name, fault, draw).wait()
        said = text.splitlines()
        assert status in (0, 2, *FAULTS[fault]), (status, *said[-4:])
        there, right = bench.written(), bench.outputs[name]
        if name != "train":
            assert there.items() <= right.items()
            assert not there or name != "score" or status != 2 or there == right, "an error, and one of two outputs"
        assert status != 0 or there == right
        if status == 2:
            assert said[-1].startswith(f"axial {words_of(name)[0]}: "), said
        if status >= 0:
            assert not [*bench.place.rglob("*.part*")]
        begun = (bench.place / "run" / "train.json").exists()
        if not begun:
            bench.clear()
        bench.succeed(["train", "run"] if begun else words_of(name))
        assert bench.written() == right
