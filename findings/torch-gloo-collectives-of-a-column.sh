#!/usr/bin/env bash
# Collectives of torch.distributed (gloo) on a column of a matrix, a view that is not contiguous.
#
# Guess:   what a process sends are the values of its tensor, whatever its strides are; or an error, as NCCL raises.
# Found:   with torch 2.13.0, broadcast, reduce, all_reduce and scatter take the memory from the first value of the
#          view on, as if it were contiguous. Neighbours are sent and overwritten in place of values, in silence.
#          reduce_scatter is right for columns, and wrong for transposed matrices. gather, all_gather, all_to_all and
#          the functional all_reduce are right. So the test of one collective says nothing about the next one.
# Ran on:  2026-11-28, Python 3.11, Linux, x86-64.
# Output:
#          broadcast: [[1, 2], [30, 40]] in place of [[1, 20], [3, 40]]
#          reduce: [[11, 22], [30, 40]] in place of [[11, 20], [33, 40]]
#          all_reduce: [[11, 22], [30, 40]] in place of [[11, 20], [33, 40]]
#          scatter: [[2, 3], [0, 0]] in place of [[2, 4], [0, 0]]
#          reduce_scatter_transposed: [[11, 32], [23, 44]] in place of [[11, 33], [22, 44]]
#          gather: right
#          all_gather: right
#          reduce_scatter: right
#          all_to_all: right
#          functional_all_reduce: right
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --progress-bar off torch==2.13.0 numpy==2.4.6
cat > "$folder/run.py" <<'PYTHON'
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional


def broadcast(own, out):
    column = own[:, 0]
    dist.broadcast(column, src=0)
    return own, [[1, 20], [3, 40]]


def all_reduce(own, out):
    dist.all_reduce(own[:, 0])
    return own, [[11, 20], [33, 40]]


def reduce(own, out):
    dist.reduce(own[:, 0], dst=1)
    return own, [[11, 20], [33, 40]]


def scatter(own, out):
    columns = [own[:, 0], own[:, 1]] if dist.get_rank() == 0 else None
    dist.scatter(out[0], columns, src=0)
    return out, [[2, 4], [0, 0]]


def gather(own, out):
    dist.gather(own[:, 0], [out[:, 0], out[:, 1]] if dist.get_rank() == 1 else None, dst=1)
    return out, [[1, 10], [3, 30]]


def all_gather(own, out):
    dist.all_gather([out[:, 0], out[:, 1]], own[:, 0])
    return out, [[1, 10], [3, 30]]


def reduce_scatter(own, out):
    dist.reduce_scatter(out[0], [own[:, 0], own[:, 1]])
    return out, [[22, 44], [0, 0]]


def reduce_scatter_transposed(own, out):
    dist.reduce_scatter(out, [own.T, own.T])
    return out, [[11, 33], [22, 44]]


def all_to_all(own, out):
    dist.all_to_all([out[:, 0], out[:, 1]], [own[:, 0], own[:, 1]])
    return out, [[2, 20], [4, 40]]


def functional_all_reduce(own, out):
    out[0] = functional.all_reduce(own[:, 0], "sum", dist.group.WORLD)
    return out, [[11, 33], [0, 0]]


WRONG = (broadcast, reduce, all_reduce, scatter, reduce_scatter_transposed)
RIGHT = (gather, all_gather, reduce_scatter, all_to_all, functional_all_reduce)


def work(rank, meeting):
    limit = timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2, timeout=limit)
    for case in WRONG + RIGHT:
        own = torch.tensor([[1, 2], [3, 4]]) * (1, 10)[rank]
        result, expected = case(own, torch.zeros(2, 2, dtype=own.dtype))
        said = "right" if result.tolist() == expected else f"{result.tolist()} in place of {expected}"
        if rank == 1:
            print(f"{case.__name__}: {said}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(work, (sys.argv[1],), nprocs=2)
PYTHON
"$folder/venv/bin/python" "$folder/run.py" "$folder/meeting" | tee "$folder/output"
diff "$folder/output" <(sed -n '/^# Output:/,/^set /s/^#          //p' "$0") || { echo 'the behaviour has changed'; exit 1; }
