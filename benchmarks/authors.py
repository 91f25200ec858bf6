"""The authors' TensorFlow code: its times beside this package's, and the cases of tests/data/official_* again.

    python benchmarks/authors.py time CHECKOUT --tensorflow PYTHON
    python benchmarks/authors.py cases CHECKOUT --tensorflow PYTHON --out tests/data

CHECKOUT holds the folder `axial` of github.com/google-research/google-research, unchanged.
PYTHON is the interpreter of an environment with `benchmarks/authors_requirements.txt`.

`time` scores equal images and samples from equal noise, with equal weights: CPU time of one thread. TensorFlow runs
plainly, and as one graph that XLA compiles, each in its own process. All must agree first; then rounds are interleaved.
The last line is JSON.

`cases` writes what the authors' code computes from known seeds, and how far that is from what is stored:

- official_a: a Transformer3d of three channels (seed 11): logits, bits/dim, gradients, samples.
- official_c: a Transformer2d of one channel (seed 13): hidden states too.
- official_e: a SlicedChannelModel (seed 15) before and after six steps of training, with EMA weights.
- official_published: names, shapes and types of the variables of the published configurations.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from axial_transformers.decoding import gumbel
from axial_transformers.decoding.sampling import sample
from axial_transformers.importers.official import import_official
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.models import AxialTransformer
from command_line import run_command
from speed import ties
from timing import interleaved

WORKER = Path(__file__).with_name("authors_worker.py")
STORED = Path(__file__).parents[1] / "tests" / "data"
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
GRAPH = "one XLA graph"
WAYS = ("plain", GRAPH)
"""How TensorFlow runs."""

OURS = "this package"
LIKELIHOOD, SAMPLE = "likelihood", "sample"


class AuthorsError(RuntimeError):
    """What a user can mend; one line."""


class Worker:
    """A process that answers each line of JSON with one."""

    def __init__(self, python: Path):
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        pipe = subprocess.PIPE
        try:
            self.process = subprocess.Popen(
                [python, WORKER], stdin=pipe, stdout=pipe, stderr=self.errors, text=True, env=os.environ | QUIET
            )
        except OSError as error:
            raise AuthorsError(f"{python} cannot be started: {error.strerror}") from error

    def ask(self, **request: object) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):
            print(json.dumps(request), file=self.process.stdin, flush=True)
        if answer := self.process.stdout.readline():
            return json.loads(answer)
        self.errors.seek(0)
        said = self.errors.read().strip().splitlines() or ["nothing"]
        raise AuthorsError(f"the TensorFlow process ended at {request['do']!r} and said: {said[-1]}")

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.errors.close()


def checked(checkout: Path) -> str:
    if not (checkout / "axial" / "transformers.py").is_file():
        raise AuthorsError(f"{checkout} holds no axial/transformers.py: give the folder that holds the authors' axial/")
    return str(checkout.resolve())


def time(
    checkout: Path,
    *,
    tensorflow: Path,
    batches: tuple[int, ...] = (1, 4, 16),
    rounds: int = 3,
    size: int = 32,
    width: int = 128,
    heads: int = 4,
    layers: int = 2,
) -> None:
    """Compare the time of likelihoods and samples of images with three channels."""
    model = {f"num_{stack}_layers": layers for stack in ("exterior", "outer", "inner")}
    model |= {"img_height": size, "img_width": size, "img_channels": 3, "num_embs": 256}
    model |= {"emb_dim": width, "num_heads": heads, "hdim_factor": 1}
    request = {"do": "prepare", "checkout": checked(checkout), "model": model, "batches": batches}
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        shape = (max(batches), size, size, 3)
        x = torch.randint(256, shape, generator=torch.Generator().manual_seed(0))
        noise = gumbel((*shape, 256), seed=1)
        np.savez(f"{folder}/inputs.npz", x=x.numpy().astype(np.int32), noise=noise.numpy())
        workers = {}
        for way in WAYS:
            workers[way] = stack.enter_context(closing(Worker(tensorflow)))
            versions = workers[way].ask(**request, folder=folder, compiled=way == GRAPH)
        ours = import_official(folder, raw=True, heads=heads)
        inputs, rows = {LIKELIHOOD: x, SAMPLE: noise}, []
        for work, batch in product(inputs, batches):
            seconds = measure(ours, workers, work, inputs[work][:batch], rounds)
            rows.append({"work": work, "batch": batch, "seconds": seconds})
            print(rows[-1], file=sys.stderr, flush=True)
    show(rows)
    print(json.dumps({"model": model, "torch": torch.__version__, **versions, "rounds": rounds, "rows": rows}))


def measure(
    ours: AxialTransformer, workers: Mapping[str, Worker], work: str, given: Tensor, rounds: int
) -> dict[str, float]:
    """Seconds of CPU time of one piece of work, by who does it, once all have given the same result."""
    spent = 0.0

    def do_ours() -> Tensor:
        nonlocal spent
        start = process_time()
        result = bits_per_dim(ours, given) if work == LIKELIHOOD else sample(ours, noise=given)
        spent += process_time() - start
        return result

    def do_theirs(worker: Worker) -> Tensor:
        nonlocal spent
        answer = worker.ask(do="run", work=work, batch=len(given))
        spent += answer["seconds"]
        return torch.tensor(answer["result"])

    runs: dict[str, Callable[[], Tensor]] = {OURS: do_ours}
    runs |= {way: partial(do_theirs, worker) for way, worker in workers.items()}
    results = {name: run() for name, run in runs.items()}
    for way in workers:
        require_equal(ours, work, given, results[OURS], results[way], way)
    return interleaved(runs, rounds, warm_up=0, clock=lambda: spent)


def require_equal(ours: AxialTransformer, work: str, given: Tensor, mine: Tensor, other: Tensor, way: str) -> None:
    if mine.shape != other.shape:
        raise AuthorsError(f"{work}, {way}: {list(other.shape)} numbers instead of {list(mine.shape)}")
    if work == SAMPLE:
        ties(ours, given, mine, other.to(mine))  # asserts that only ties within rounding set them apart
    elif (gap := (mine - other).abs().max().item()) > 1e-4:
        raise AuthorsError(f"{work}, {way}: another result, by {gap:.2g} bits/dim")


def show(rows: list[dict[str, Any]]) -> None:
    table = Table("work", "batch", f"{OURS}, seconds", *WAYS, title="times as long as this package, CPU time")
    for row in rows:
        seconds = row["seconds"]
        ratios = (f"{seconds[way] / seconds[OURS]:.2f}" for way in WAYS)
        table.add_row(row["work"], str(row["batch"]), f"{seconds[OURS]:.3f}", *ratios)
    Console(width=100).print(table)


def cases(checkout: Path, *, tensorflow: Path, out: Path) -> None:
    """Write the stored cases again, and how far they are from those in tests/data."""
    request = {"do": "case", "checkout": checked(checkout)}
    for name in sorted(path.name for path in STORED.glob("official_*")):
        with tempfile.TemporaryDirectory() as aside, closing(Worker(tensorflow)) as worker:
            worker.ask(**request, name=name, folder=aside)
            for path in sorted(path for path in Path(aside).rglob("*") if path.is_file()):
                of_case = Path(name) / path.relative_to(aside)
                print(f"{of_case}: {difference(path, STORED / of_case)}", flush=True)
            shutil.copytree(aside, out / name, dirs_exist_ok=True)


def difference(path: Path, stored: Path) -> str:
    """What sets a file apart from the one that is stored."""
    if not stored.exists():
        return "not stored"
    if path.read_bytes() == stored.read_bytes():
        return "the stored bytes"
    if path.suffix != ".npz":
        return "other bytes"
    with np.load(path) as new, np.load(stored) as old:
        if set(new.files) != set(old.files):
            return f"other arrays: {', '.join(sorted(set(new.files) ^ set(old.files)))}"
        gaps = {array: np.abs(new[array].astype(np.float64) - old[array]).max() for array in old.files}
    furthest = max(gaps, key=lambda array: gaps[array])
    return f"at most {gaps[furthest]:.1e} from the stored arrays, in {furthest}"


def main(argv: Sequence[str] | None = None) -> None:
    try:
        run_command(time, cases, description=__doc__, argv=argv)
    except AuthorsError as error:
        print(f"authors.py: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
