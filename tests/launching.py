"""Starts a command as several processes of one run, as torchrun does."""

import os
import socket
import subprocess


def launch(command: list[str], processes: int) -> list[subprocess.Popen[str]]:
    """The processes, by rank; their errors can be read."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    workers = []
    for rank in range(processes):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "MASTER_PORT": port}
        env = os.environ | {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
        env |= {key: str(value) for key, value in place.items()} if processes > 1 else {}
        workers.append(subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True))
    return workers
