#!/usr/bin/env bash
# load_dataset(name, revision=...) of a data set that is in the cache in another revision, without the hub.
#
# Guess:   a revision that is not in the cache is an error; one that is there is read, whichever was used last.
# Found:   with datasets 5.2.0 and HF_HUB_OFFLINE=1, the revision is ignored. Whatever is asked for, a commit that is
#          there, one that is not, or a branch, the copy that was written last is read. The line that is logged names
#          neither the revision that was asked for nor that it differs. The same code runs if the hub does not answer.
# Ran on:  2026-11-28, Python 3.11, Linux, x86-64.
# Output:
#          revision aaaaaaaa: rows [1, 2], of commit bbbbbbbb
#          revision bbbbbbbb: rows [1, 2], of commit bbbbbbbb
#          revision cccccccc: rows [1, 2], of commit bbbbbbbb
#          revision main: rows [1, 2], of commit bbbbbbbb
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --progress-bar off datasets==5.2.0 numpy==2.4.6
cat > "$folder/run.py" <<'PYTHON'
import json
import os
import shutil
import sys
from pathlib import Path

folder = Path(sys.argv[1])
os.environ.update(HF_HOME=str(folder), HF_HUB_OFFLINE="1")
import datasets

datasets.disable_progress_bars()
datasets.logging.set_verbosity_error()
for number, commit in enumerate(("a" * 40, "b" * 40)):  # as two downloads leave them, the second one later
    table = datasets.Dataset.from_dict({"x": [number, number + 1]})
    table.to_parquet(folder / f"{number}.parquet")
    builder = datasets.load_dataset_builder("parquet", data_files={"train": str(folder / f"{number}.parquet")})
    builder.download_and_prepare()
    copy = folder / "datasets" / "alice___numbers" / "default" / "0.0.0" / commit
    shutil.copytree(builder.cache_dir, copy)
    about = json.loads((copy / "dataset_info.json").read_text())
    (copy / "dataset_info.json").write_text(json.dumps(about | {"config_name": "default", "dataset_name": "numbers"}))
    for file in copy.glob("parquet-*"):
        file.rename(copy / file.name.replace("parquet-", "numbers-"))
    os.utime(copy, (10**9 + number, 10**9 + number))
for revision in ("a" * 40, "b" * 40, "c" * 40, "main"):
    rows = datasets.load_dataset("alice/numbers", split="train", revision=revision)
    commit = datasets.load_dataset_builder("alice/numbers", revision=revision).hash
    print(f"revision {revision[:8]}: rows {rows['x'][:]}, of commit {commit[:8]}")
PYTHON
"$folder/venv/bin/python" "$folder/run.py" "$folder" | tee "$folder/output"
diff "$folder/output" <(sed -n 's/^#          \(revision .*: rows .*\)$/\1/p' "$0") || { echo 'the behaviour has changed'; exit 1; }
