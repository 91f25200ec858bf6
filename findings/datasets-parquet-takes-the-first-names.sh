#!/usr/bin/env bash
# Parquet files of Hugging Face datasets, written apart, whose classes have other names or another order.
#
# Guess:   load_dataset of both files matches classes by name, or raises, as concatenate_datasets does.
# Found:   with datasets 5.2.0, the names of the first file hold for all, while the numbers are those of each file. In
#          the other order of files, all names change. A number may be left without a name.
# Ran on:  2026-11-28, Python 3.11, Linux, x86-64.
# Output:
#          a and b: written ['cat', 'dog', 'dog', 'cat'], read ['cat', 'dog', 'cat', 'dog']; concatenate_datasets raises
#          b and a: written ['dog', 'cat', 'cat', 'dog'], read ['dog', 'cat', 'dog', 'cat']; concatenate_datasets raises
#          a and c: written ['cat', 'dog', 'cat', 'dog', 'fox'], read ['cat', 'dog', 'cat', 'dog', 'number 2']; concatenate_datasets raises
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --progress-bar off datasets==5.2.0 numpy==2.4.6
cat > "$folder/run.py" <<'PYTHON'
import os
import sys

folder = sys.argv[1]
os.environ.update(HF_HOME=folder, HF_HUB_OFFLINE="1")
import datasets

datasets.disable_progress_bars()
parts = {"a": ["cat", "dog"], "b": ["dog", "cat"], "c": ["cat", "dog", "fox"]}
tables = {}
for name, classes in parts.items():
    features = datasets.Features({"label": datasets.ClassLabel(names=classes)})
    tables[name] = datasets.Dataset.from_dict({"label": [*range(len(classes))]}, features=features)
    tables[name].to_parquet(f"{folder}/{name}.parquet")
for names in ("ab", "ba", "ac"):
    written = [parts[name][number] for name in names for number in tables[name]["label"]]
    table = datasets.load_dataset("parquet", data_files=[f"{folder}/{name}.parquet" for name in names], split="train")
    classes = table.features["label"].names
    read = [classes[number] if number < len(classes) else f"number {number}" for number in table["label"]]
    try:
        joined = datasets.concatenate_datasets([tables[name] for name in names]).features["label"].names
    except ValueError:
        joined = "raises"
    print(f"{names[0]} and {names[1]}: written {written}, read {read}; concatenate_datasets {joined}")
PYTHON
"$folder/venv/bin/python" "$folder/run.py" "$folder" | tee "$folder/output"
diff "$folder/output" <(sed -n '/^# Output:/,/^set /s/^#          //p' "$0") || { echo 'the behaviour has changed'; exit 1; }
