#!/usr/bin/env bash
# Second derivatives of layer_norm, instance_norm and batch_norm whose inner pass is in forward mode.
#
# Guess:   jacrev(jacfwd(f)), jacfwd(jacfwd(f)) and jacfwd(jacrev(f)) give one Hessian, up to rounding, as torch.func says
#          of compositions; what has no formula raises.
# Found:   with torch 2.13.0 on a CPU, in float64, layer_norm, instance_norm and batch_norm give other numbers, without a
#          word, if the inner transform is jacfwd: errors of 0.4 to 1.9 times the largest entry. With jacrev inside, and
#          for group_norm and rms_norm in every order, all agree to rounding. group_norm with one group is layer_norm
#          here: one function, two Hessians.
# Ran on:  2026-11-28, Python 3.11, Linux, x86-64.
# Output:
#          layer_norm     jacfwd(jacrev) right, jacrev(jacfwd) WRONG, jacfwd(jacfwd) WRONG
#          instance_norm  jacfwd(jacrev) right, jacrev(jacfwd) WRONG, jacfwd(jacfwd) WRONG
#          batch_norm     jacfwd(jacrev) right, jacrev(jacfwd) WRONG, jacfwd(jacfwd) WRONG
#          group_norm     jacfwd(jacrev) right, jacrev(jacfwd) right, jacfwd(jacfwd) right
#          rms_norm       jacfwd(jacrev) right, jacrev(jacfwd) right, jacfwd(jacfwd) right
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --progress-bar off torch==2.13.0 numpy==2.4.6
cat > "$folder/run.py" <<'PYTHON'
import torch
import torch.nn.functional as F
from torch.func import jacfwd, jacrev

torch.manual_seed(0)
x, weight, bias = (torch.randn(*shape, dtype=torch.float64) for shape in ((3, 6), (6,), (6,)))
norms = {
    "layer_norm": lambda x: F.layer_norm(x, (6,), weight, bias),
    "instance_norm": lambda x: F.instance_norm(x[None]),
    "batch_norm": lambda x: F.batch_norm(x, None, None, weight, bias, training=True),
    "group_norm": lambda x: F.group_norm(x, 1, weight, bias),
    "rms_norm": lambda x: F.rms_norm(x, (6,), weight),
}
for name, norm in norms.items():
    def cubes(x, norm=norm):
        return (norm(x) ** 3).sum()

    by_reverse_mode = jacrev(jacrev(cubes))(x)
    nested = {
        "jacfwd(jacrev)": jacfwd(jacrev(cubes)),
        "jacrev(jacfwd)": jacrev(jacfwd(cubes)),
        "jacfwd(jacfwd)": jacfwd(jacfwd(cubes)),
    }
    words = []
    for order, hessian in nested.items():
        error = (hessian(x) - by_reverse_mode).abs().max() / by_reverse_mode.abs().max()
        assert error < 1e-12 or error > 0.1, error
        words.append(f"{order} {'right' if error < 1e-12 else 'WRONG'}")
    print(f"{name:14} {', '.join(words)}")
PYTHON
"$folder/venv/bin/python" "$folder/run.py" | tee "$folder/output"
diff "$folder/output" <(sed -n 's/^#          \(\w* *jacfwd(jacrev) .*\)$/\1/p' "$0") || { echo 'the behaviour has changed'; exit 1; }
