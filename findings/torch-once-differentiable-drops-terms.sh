#!/usr/bin/env bash
# Second derivatives through an autograd.Function whose backward is marked @once_differentiable.
#
# Guess:   a second derivative through it raises an error: the decorator is there for that.
# Found:   with torch 2.13.0 the decorator puts an error beside the path to the input, not on it. torch.autograd.grad
#          runs only what leads to its inputs, so it misses the error: the term of the cube is left out, without a
#          word, or is 0 by torch.autograd.functional. backward() raises, but only if the gradient that comes into the
#          cube needs one itself. A gradient penalty thus trains without the term of the layer that it is for.
# Ran on:  2026-11-28, Python 3.11, Linux, x86-64.
# Output:
#          cube(x)       at 2, 12: grad of grad an error, backward of grad an error, hessian 0, hvp 0, vhp 0
#          cube(x) + x^2 at 2, 14: grad of grad 2, backward of grad 2, hessian 2, hvp 2, vhp 2
#          cube(x^2)     at 2, 480: grad of grad 96, backward of grad 96, hessian 96, hvp 96, vhp 96
#          x cube(x)     at 2, 48: grad of grad 12, backward of grad an error, hessian 12, hvp 0, vhp 12
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --progress-bar off torch==2.13.0 numpy==2.4.6
cat > "$folder/run.py" <<'PYTHON'
import torch
from torch.autograd.function import once_differentiable
from torch.autograd.functional import hessian, hvp, vhp


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad


def by_grad_of_grad(f, x):
    (first,) = torch.autograd.grad(f(x), x, create_graph=True)
    return torch.autograd.grad(first, x)[0]


def by_backward_of_grad(f, x):
    x = x.detach().requires_grad_()
    (first,) = torch.autograd.grad(f(x), x, create_graph=True)
    first.backward()
    return x.grad


ways = {
    "grad of grad": by_grad_of_grad,
    "backward of grad": by_backward_of_grad,
    "hessian": hessian,
    "hvp": lambda f, x: hvp(f, x, torch.ones_like(x))[1],
    "vhp": lambda f, x: vhp(f, x, torch.ones_like(x))[1],
}
cases = {
    "cube(x)": (Cube.apply, 12),
    "cube(x) + x^2": (lambda x: Cube.apply(x) + x**2, 14),
    "cube(x^2)": (lambda x: Cube.apply(x**2), 480),
    "x cube(x)": (lambda x: x * Cube.apply(x), 48),
}
x = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
for name, (f, expected) in cases.items():
    results = []
    for way, second_derivative in ways.items():
        try:
            results.append(f"{way} {second_derivative(f, x).item():g}")
        except RuntimeError:
            results.append(f"{way} an error")
    print(f"{name:13} at 2, {expected}: {', '.join(results)}")
PYTHON
"$folder/venv/bin/python" "$folder/run.py" | tee "$folder/output"
diff "$folder/output" <(sed -n '/^# Output:/,/^set /s/^#          //p' "$0") || { echo 'the behaviour has changed'; exit 1; }
