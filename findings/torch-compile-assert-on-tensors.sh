#!/usr/bin/env bash
# `assert tensors` in a compiled function, where tensors is a tuple, a list or a dict.
#
# Guess:   the assertion is about a Python container: true unless it is empty, and no part of the graph, as `if tensors`.
# Found:   torch 2.13.0 makes an assertion of the graph out of it, and then fails: with fullgraph=True, Unsupported
#          ("TypeError when making fake tensor call"). One tensor among its values is enough; a container of numbers is
#          fine. Without fullgraph the function works, and nothing is said. `assert len(tensors) > 0`,
#          `assert tensors is not None` and `if not tensors: raise` compile.
# Ran on:  2026-11-29, Python 3.11, Linux, x86-64.
# Output:
#          tuple of numbers: compiled
#          tuple of tensors: Unsupported
#          list of tensors: Unsupported
#          dict of tensors: Unsupported
#          tuple of a number and a tensor: Unsupported
#          tuple of tensors, by its length: compiled
#          tuple of tensors, by an if: compiled
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --progress-bar off torch==2.13.0 numpy==2.4.6
cat > "$folder/run.py" <<'PYTHON'
import torch


def asserts(x, values):
    assert values
    return x + len(values)


def asserts_length(x, values):
    assert len(values) > 0
    return x + len(values)


def raises(x, values):
    if not values:
        raise ValueError
    return x + len(values)


def outcome(function, values):
    torch.compiler.reset()
    x = torch.ones(2)
    assert torch.equal(function(x, values), torch.compile(function, backend="eager")(x, values))
    torch.compiler.reset()
    try:
        torch.compile(function, backend="eager", fullgraph=True)(x, values)
    except Exception as error:
        return type(error).__name__
    return "compiled"


t = torch.ones(2)
for name, function, values in (
    ("tuple of numbers", asserts, (1, 2)),
    ("tuple of tensors", asserts, (t, t)),
    ("list of tensors", asserts, [t]),
    ("dict of tensors", asserts, {"a": t}),
    ("tuple of a number and a tensor", asserts, (1, t)),
    ("tuple of tensors, by its length", asserts_length, (t, t)),
    ("tuple of tensors, by an if", raises, (t, t)),
):
    print(f"{name}: {outcome(function, values)}")
PYTHON
"$folder/venv/bin/python" "$folder/run.py" 2>/dev/null | tee "$folder/output"
diff "$folder/output" <(sed -n '/^# Output:/,/^set /s/^#          //p' "$0") || { echo 'the behaviour has changed'; exit 1; }
