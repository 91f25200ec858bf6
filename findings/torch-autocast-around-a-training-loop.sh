#!/usr/bin/env bash
# torch.autocast around a whole training loop, in place of around each forward pass.
#
# Guess:   the model learns the same, since backward and the optimizer do not compute in autocast; at most more is
#          rounded.
# Found:   with torch 2.13.0, autocast keeps the rounded copy of a weight until the outermost context ends, though the
#          optimizer changes the weight. All steps compute with the first weights: the loss stays what it was, while
#          the weight follows the first gradient, past the minimum. A context for each forward pass within the outer
#          one does not cure it; cache_enabled=False does.
# Ran on:  2026-11-28, Python 3.11, Linux, x86-64.
# Output:
#          around each forward pass   losses [1.0, 0.25, 0.0625, 0.015625], weight 0.9375; the best is 1
#          around the loop            losses [1.0, 1.0, 1.0, 1.0], weight 2.0; the best is 1
#          around both                losses [1.0, 1.0, 1.0, 1.0], weight 2.0; the best is 1
#          around the loop, no cache  losses [1.0, 0.25, 0.0625, 0.015625], weight 0.9375; the best is 1
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --progress-bar off torch==2.13.0 numpy==2.4.6
cat > "$folder/run.py" <<'PYTHON'
from contextlib import nullcontext

import torch


def train(around, inside):
    layer = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(layer.weight)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.25)
    losses = []
    with around():
        for _ in range(4):
            with inside():
                loss = (layer(torch.ones(1, 1)).float() - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, layer.weight.item()


def cast(cache=True):
    return torch.autocast("cpu", torch.bfloat16, cache_enabled=cache)


ways = {
    "around each forward pass": (nullcontext, cast),
    "around the loop": (cast, nullcontext),
    "around both": (cast, cast),
    "around the loop, no cache": (lambda: cast(cache=False), nullcontext),
}
for name, way in ways.items():
    losses, weight = train(*way)
    print(f"{name:26} losses {losses}, weight {weight}; the best is 1")
PYTHON
"$folder/venv/bin/python" "$folder/run.py" | tee "$folder/output"
diff "$folder/output" <(sed -n '/^# Output:/,/^set /s/^#          //p' "$0") || { echo 'the behaviour has changed'; exit 1; }
