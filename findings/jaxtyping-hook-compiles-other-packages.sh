#!/usr/bin/env bash
# A package that is first imported by a module behind jaxtyping's import hook.
#
# Guess:   install_import_hook("room", ...) concerns room alone; what room imports is loaded from its bytecode, as always.
# Found:   jaxtyping 0.3.11 renames the bytecode of all modules while room is imported: those of other packages too. So
#          these are compiled from their source again, unless they were imported before the hook; a second set of files
#          is written beside the first, for each type checker one. With PYTHONDONTWRITEBYTECODE, as in many containers, it
#          happens in every process: with torch._dynamo and sympy, about 900 modules and four seconds.
# Ran on:  2026-11-29, Python 3.11, Linux, x86-64.
# Output:
#          without the hook: 0 modules of mpmath compiled
#          behind the hook: 51 modules of mpmath compiled
#          behind the hook, once more: 0 modules of mpmath compiled
#          imported before: 0 modules of mpmath compiled
#          files of bytecode for each module of mpmath: 2
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --progress-bar off jaxtyping==0.3.11 mpmath==1.3.0 numpy==2.3.5
echo 'import mpmath' > "$folder/room.py"
cat > "$folder/run.py" <<'PYTHON'
import importlib.machinery
import sys
from pathlib import Path

from jaxtyping import install_import_hook

compiled = []
usual = importlib.machinery.SourceFileLoader.source_to_code


def source_to_code(self, data, path, **options):
    compiled.append(Path(path))
    return usual(self, data, path, **options)


importlib.machinery.SourceFileLoader.source_to_code = source_to_code
title = sys.argv[1]
if title == "imported before":
    import mpmath
if title != "without the hook":
    install_import_hook("room", None)
import room

count = sum("mpmath" in path.parts for path in compiled)
print(f"{title}: {count} modules of mpmath compiled")
if title == "imported before":
    files = [*Path(room.mpmath.__file__).parent.glob("__pycache__/__init__.*.pyc")]
    print("files of bytecode for each module of mpmath:", len(files))
PYTHON
for title in "without the hook" "behind the hook" "behind the hook, once more" "imported before"; do
  PYTHONPATH="$folder" "$folder/venv/bin/python" "$folder/run.py" "$title"
done | tee "$folder/output"
diff "$folder/output" <(sed -n '/^# Output:/,/^set /s/^#          //p' "$0") || { echo 'the behaviour has changed'; exit 1; }
