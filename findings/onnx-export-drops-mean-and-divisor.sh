#!/usr/bin/env bash
# torch.onnx.export of scatter_reduce with "mean", and of avg_pool2d with divisor_override.
#
# Guess:   they give torch's numbers, or export raises, as it does for other calls that ONNX has no operator for.
# Found:   with torch 2.13.0 and onnxscript 0.7.2, a mean becomes the last value that is written to its place, and
#          divisor_override is left out. Export and model run without an error; the numbers are others. Sum, product,
#          maximum and minimum are right.
# Ran on:  2026-11-28, Python 3.11, Linux, x86-64.
# Output:
#          scatter_reduce, sum: torch [4.0, 5.0], exported [4.0, 5.0]
#          scatter_reduce, prod: torch [3.0, 6.0], exported [3.0, 6.0]
#          scatter_reduce, amax: torch [3.0, 3.0], exported [3.0, 3.0]
#          scatter_reduce, amin: torch [1.0, 2.0], exported [1.0, 2.0]
#          scatter_reduce, mean: torch [2.0, 2.5], exported [3.0, 2.0]
#          avg_pool2d: torch [2.5, 4.5, 10.5, 12.5], exported [2.5, 4.5, 10.5, 12.5]
#          avg_pool2d, divisor_override=1: torch [10.0, 18.0, 42.0, 50.0], exported [2.5, 4.5, 10.5, 12.5]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --progress-bar off torch==2.13.0 onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.31.1 numpy==2.4.6
cat > "$folder/run.py" <<'PYTHON'
import sys

import onnxruntime
import torch
from torch.nn.functional import avg_pool2d

places = torch.tensor([0, 0, 1, 1])
points = torch.tensor([1.0, 3.0, 3.0, 2.0])
image = torch.arange(16.0).reshape(1, 1, 4, 4)


def scattered(kind):
    return lambda x: torch.zeros(2).scatter_reduce(0, places, x, kind, include_self=False)


cases = {f"scatter_reduce, {kind}": (scattered(kind), points) for kind in ("sum", "prod", "amax", "amin", "mean")}
cases["avg_pool2d"] = (lambda x: avg_pool2d(x, 2), image)
cases["avg_pool2d, divisor_override=1"] = (lambda x: avg_pool2d(x, 2, divisor_override=1), image)
for name, (function, x) in cases.items():

    class Model(torch.nn.Module):
        def forward(self, x):
            return function(x)

    torch.onnx.export(Model(), (x,), sys.argv[1], dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(sys.argv[1])
    (exported,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    print(f"{name}: torch {function(x).ravel().tolist()}, exported {exported.ravel().tolist()}")
PYTHON
"$folder/venv/bin/python" "$folder/run.py" "$folder/model.onnx" 2> "$folder/errors" | tee "$folder/output"
diff "$folder/output" <(sed -n '/^# Output:/,/^set /s/^#          //p' "$0") || { echo 'the behaviour has changed'; exit 1; }
