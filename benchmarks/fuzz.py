"""Structure-aware fuzzing of everything that is parsed: small sound files, mutated; every outcome classified.

    python benchmarks/fuzz.py PARSER COUNT [SEED] [--first N] [--failures FOLDER]    one parser, or all
    python benchmarks/fuzz.py PARSER --replay FILE                                   one input again, with its traceback

Half of the mutated files get their checksums mended, so that they reach the code behind the checks. Outcomes:

    ok, refused     parsed; or a ValueError or OSError of one line
    untyped         another error, or one of several lines
    wrong           parsed to something else than what was written, though the checksums were not mended; or, in
                    archives, whose streams end with a checksum of their own, to other images
    memory          more than 1 GB beyond what the process had
    hang            more than 10 s of processor time, or 60 s in all
    crash           the process died

The last five are failures: each is written to FOLDER, at most three of a kind. The last line is JSON; exit status 1 if
there were failures. Input N depends on PARSER, SEED and N alone.
"""

import argparse
import errno
import faulthandler
import json
import mmap
import os
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import fuzz_data
import fuzz_models
import fuzz_tensorflow
from fuzz_mutations import Parser, mutate, mutate_json

PARSERS: dict[str, Callable[[Path], Parser]] = {**fuzz_data.PARSERS, **fuzz_tensorflow.PARSERS, **fuzz_models.PARSERS}
"""Each is made with an empty folder, to work in."""

OUTCOMES = ("ok", "refused", "untyped", "wrong", "memory", "hang", "crash")
SECONDS, WALL_SECONDS, BYTES = 10.0, 60.0, 1 << 30
KEPT = 3  # inputs of each kind of failure
_STATE = struct.Struct(f"<q{len(OUTCOMES)}qdqqq")  # input, counts, slowest: seconds and input, largest: bytes and input


class Shared:
    """Counts that outlive the process which makes them."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _STATE.size)
        self.current = 0
        self.counts = dict.fromkeys(OUTCOMES, 0)
        self.slowest, self.largest = (0.0, 0), (0, 0)

    def put(self) -> None:
        values = self.current, *self.counts.values(), *self.slowest, *self.largest
        _STATE.pack_into(self._memory, 0, *values)

    def get(self) -> None:
        self.current, *values = _STATE.unpack_from(self._memory)
        self.counts = dict(zip(OUTCOMES, values))
        *_, seconds, i, size, j = values
        self.slowest, self.largest = (seconds, i), (size, j)


def make(parser: Parser, seed: int, i: int) -> tuple[str, bytes, bool]:
    """Input i: name and bytes of a file, and whether its checksums may have been mended."""
    draw = Random(f"{seed}/{i}")
    if parser.generate and draw.random() < parser.generated:
        return *parser.generate(draw), True
    name, content = draw.choice(parser.seeds)
    _, other = draw.choice(parser.seeds)
    times = draw.choice((1, 1, 1, 2, 4))
    if name.endswith(".json") and draw.random() < 0.7:
        content = mutate_json(content, draw, times)
    elif parser.structured and draw.random() < 0.5:
        content = parser.structured(name, content, draw)
    else:
        content = mutate(content, other, draw, times)
    mended = parser.mend is not None and draw.random() < 0.5
    return name, parser.mend(name, content) if mended else content, mended


def judge(parser: Parser, name: str, content: bytes, mended: bool) -> tuple[str, str]:
    """The outcome of parsing an input, and where it comes from."""
    try:
        result = parser.parse(name, content)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        if _lacks_memory(error):
            return "memory", _signature(error)
        line = str(error)
        typed = isinstance(error, (ValueError, OSError)) and line.strip() and len(line.splitlines()) == 1
        return ("refused" if typed else "untyped"), _signature(error)
    right = parser.right_if_mended if mended else parser.right
    if right and not right(name, result):
        return "wrong", name
    return "ok", ""


def _lacks_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
            return True
        if "allocate memory" in str(error)[:1000]:
            return True
        error = error.__cause__ or error.__context__
    return False


def _signature(error: BaseException) -> str:
    """Type of an error, and the innermost line of the package that it went through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "axial_transformers" in frame.filename]
    place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
    return f"{type(error).__name__} at {place}"


def _limit() -> None:
    """Bounds what the process may take from now on; it is killed, or runs out of memory, when it takes more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES, hard))
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + SECONDS) + 1, hard))
    signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)


def _work(parser: Parser, seed: int, numbers: range, shared: Shared, keep: Callable[..., None]) -> None:
    warnings.simplefilter("ignore")
    faulthandler.disable()  # pytest has enabled it
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for i in numbers:
        shared.current = i
        shared.put()
        name, content, mended = make(parser, seed, i)
        _limit()
        start = time.process_time()
        outcome, where = judge(parser, name, content, mended)
        seconds = time.process_time() - start
        outcome = "hang" if seconds > SECONDS else outcome
        most = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) * 1024
        shared.counts[outcome] += 1
        shared.slowest = max(shared.slowest, (seconds, i), key=lambda pair: pair[0])
        shared.largest = max(shared.largest, (most, i), key=lambda pair: pair[0])
        if outcome not in ("ok", "refused"):
            keep(outcome, where, i, name, content, mended)
    shared.current = numbers.stop
    shared.put()


def fuzz(name: str, count: int, seed: int = 0, first: int = 0, failures: Path | None = None) -> dict[str, object]:
    """Outcomes of so many inputs; parsing is done by a process that is started again when it dies."""
    begin, shared = time.perf_counter(), Shared()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        parser = PARSERS[name](Path(place))
        found = Path(place) / "failures"
        found.touch()
        kinds = Counter[str]()

        def keep(outcome: str, where: str, i: int, of: str, content: bytes, mended: bool) -> None:
            kinds[line := f"{outcome}: {where}"] += 1
            if failures and kinds[line] <= KEPT:
                failures.mkdir(parents=True, exist_ok=True)
                state = "mended" if mended else "plain"
                (failures / f"{name}--{outcome}--{seed}--{i}--{state}--{of}").write_bytes(content)
            with found.open("a") as file:
                file.write(f"{line}\n")

        shared.current = first
        while shared.current < first + count:
            done = range(shared.current, first + count)
            status = _in_another_process(partial(_work, parser, seed, done, shared, keep))
            shared.get()
            kinds = Counter(found.read_text().splitlines())
            if status == 0:
                continue
            if status > 0:
                raise RuntimeError(f"the fuzzer failed at input {shared.current} of {name}, seed {seed}")
            outcome = "hang" if -status in (signal.SIGXCPU, signal.SIGALRM) else "crash"
            shared.counts[outcome] += 1
            keep(outcome, signal.Signals(-status).name, shared.current, *make(parser, seed, shared.current))
            shared.current += 1
        kinds = Counter(found.read_text().splitlines())
    wall = time.perf_counter() - begin
    return {
        "parser": name,
        "inputs": count,
        "seed": seed,
        "failures": sum(shared.counts[outcome] for outcome in OUTCOMES[2:]),
        **shared.counts,
        "kinds": dict(kinds.most_common(20)),
        "slowest_seconds": round(shared.slowest[0], 3),
        "slowest_input": shared.slowest[1],
        "most_megabytes": round(shared.largest[0] / 1e6),
        "most_megabytes_input": shared.largest[1],
        "wall_seconds": round(wall, 1),
        "inputs_per_second": round(count / wall),
    }


def _in_another_process(work: Callable[[], None]) -> int:
    """Exit status of a process that does the work; -N if signal N killed it."""
    sys.stdout.flush()
    sys.stderr.flush()
    if (child := os.fork()) == 0:
        status, errors, nowhere = 1, os.dup(2), os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)  # libraries in C complain there
            work()
            status = 0
        except BaseException:
            os.dup2(errors, 2)
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def replay(file: Path) -> None:
    """Parses one input that was kept; its error is raised."""
    name, outcome, _, _, state, of = file.name.split("--", 5)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        parser = PARSERS[name](Path(place))
        _limit()
        start = time.process_time()
        try:
            result = parser.parse(of, file.read_bytes())
        finally:
            print(f"was {outcome}; {time.process_time() - start:.2f} s of processor time now")
        right = parser.right if state == "plain" else parser.right_if_mended
        if right and not right(of, result):
            print("WRONG: parsed to something else than what was written")
        print(f"{result!r:.1000}")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("parser", choices=[*PARSERS, "all"])
    arguments.add_argument("count", nargs="?", type=int, default=1000)
    arguments.add_argument("seed", nargs="?", type=int, default=0)
    arguments.add_argument("--first", type=int, default=0, help="number of the first input")
    arguments.add_argument("--failures", type=Path, default=Path(tempfile.gettempdir()) / "fuzz_failures")
    arguments.add_argument("--replay", type=Path, help="parse this input again, in this process")
    given = arguments.parse_args()
    if given.replay:
        replay(given.replay)
        return 0
    names = list(PARSERS) if given.parser == "all" else [given.parser]
    results = [fuzz(name, given.count, given.seed, given.first, given.failures) for name in names]
    if len(results) > 1:
        for result in results:
            print(json.dumps(result))
    failed = sum(int(str(result["failures"])) for result in results)
    summary = {"failures": failed, "parsers": {str(result["parser"]): result for result in results}}
    print(json.dumps(results[0] if len(results) == 1 else summary))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
