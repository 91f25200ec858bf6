#!/usr/bin/env bash
# load_dataset(..., revision=COMMIT) of Hugging Face datasets without a connection, with two commits in the cache.
#
# Guess:   the rows of that commit, which are in the cache; an error for a commit that is not.
# Found:   with datasets 5.2.0 and HF_HUB_OFFLINE=1, each call gives the rows of the commit that was prepared last: for
#          the other one, for one that was never there, and for none. Nothing raises. The log says "the latest cached
#          version", and no commit. `builder.hash` is the commit that was taken.
# Ran on:  2026-11-28, Python 3.11, Linux, x86-64. The cache holds what a download of either commit leaves there.
# Output:
#          older: rows of newer
#          newer: rows of newer
#          never there: rows of newer
#          no revision: rows of newer
#          builder.hash is the one taken: True
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --progress-bar off datasets==5.2.0
cat > "$folder/run.py" <<'PYTHON'
import json
import os
import shutil
import sys
import time
from pathlib import Path

import datasets

cache = Path(os.environ["HF_DATASETS_CACHE"])
older, newer, never = "1" * 40, "2" * 40, "3" * 40
for commit, rows in ((older, ["older"]), (newer, ["newer"])):
    time.sleep(1.1)  # the times of the two commits differ
    file = Path(sys.argv[1], f"{commit}.parquet")
    datasets.Dataset.from_dict({"text": rows}).to_parquet(file)
    builder = datasets.load_dataset_builder("parquet", data_files={"train": str(file)})
    builder.download_and_prepare()
    kept = Path(shutil.copytree(builder.cache_dir, cache / "alice___rows" / "default" / "0.0.0" / commit))
    about = json.loads((kept / "dataset_info.json").read_text())
    (kept / "dataset_info.json").write_text(json.dumps(about | {"config_name": "default", "dataset_name": "rows"}))
    for arrow in kept.glob("parquet-*"):
        arrow.rename(kept / arrow.name.replace("parquet-", "rows-"))
for name, revision in (("older", older), ("newer", newer), ("never there", never), ("no revision", None)):
    print(f"{name}: rows of {datasets.load_dataset('alice/rows', revision=revision)['train']['text'][0]}")
builder = datasets.load_dataset_builder("alice/rows", revision=older)
print(f"builder.hash is the one taken: {builder.hash == newer}")
PYTHON
export HF_DATASETS_CACHE="$folder/cache" HF_HUB_OFFLINE=1
"$folder/venv/bin/python" "$folder/run.py" "$folder" 2> "$folder/log" | tee "$folder/output"
diff "$folder/output" <(sed -n 's/^#          \(.*: rows of .*\|builder.hash is the one taken: .*\)$/\1/p' "$0") || { echo 'the behaviour has changed'; exit 1; }
