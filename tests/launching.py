"""Starts a command, or calls a function, as several processes of one run, as torchrun does."""

import gc
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


def launch(command: list[str], processes: int) -> list[subprocess.Popen[str]]:
    """The processes, by rank; their errors can be read."""
    workers, port = [], free_port()
    for rank in range(processes):
        environment = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "MASTER_PORT": port}
        env = os.environ | {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
        env |= {key: str(value) for key, value in environment.items()} if processes > 1 else {}
        workers.append(subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True))
    return workers


def fork(processes: int, call: Callable[[], int], logs: Path) -> list[tuple[int, str, str]]:
    """Exit status, stdout and stderr of the call in each of several processes of one run, by rank, without a start of
    Python for each. An error that is raised is status 1, with its text on stderr."""
    environment = os.environ | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(processes),
    }
    children = []
    for rank in range(processes):
        child = os.fork()
        if not child:
            gc.freeze()  # garbage of PyAV, collected in a forked process, waits for threads that are not there
            os.environ.update(environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
            stdout, stderr = ((logs / f"{name}-{rank}").open("w", newline="") for name in ("out", "err"))
            with stdout as sys.stdout, stderr as sys.stderr:
                signal.alarm(300)  # one that hangs ends, however busy the machine is
                status = 1
                try:
                    status = call()
                except SystemExit as left:
                    status = int(left.code or 0)
                except BaseException as error:
                    print(error, file=sys.stderr)
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    texts = [[(logs / f"{name}-{rank}").read_bytes().decode() for name in ("out", "err")] for rank in range(processes)]
    return [(status, out, err) for status, (out, err) in zip(statuses, texts, strict=True)]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
