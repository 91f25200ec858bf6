#!/usr/bin/env bash
# A webdataset tar in which not every example has a label, read by Hugging Face datasets.
#
# Guess:   an example without a label has None, or the file is refused; a label that is in the file is read.
# Found:   datasets 5.2.0 looks at the first five examples. If none of them has a label, the labels of all others are
#          dropped, without a word. If all have one, later examples may lack it. If some have one, the file is
#          refused. So the order of the same examples decides on labels, no labels or an error; as a stream, too.
# Ran on:  2026-11-28, Python 3.11, Linux, x86-64.
# Output:
#          labels in the last five, whole: 10 examples, 0 with labels
#          labels in the last five, as a stream: 10 examples, 0 with labels
#          labels in the first five, whole: 10 examples, 5 with labels
#          labels in the first five, as a stream: 10 examples, 5 with labels
#          labels in every second, whole: refused
#          labels in every second, as a stream: refused
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --progress-bar off datasets==5.2.0 numpy==2.4.6
cat > "$folder/run.py" <<'PYTHON'
import io
import os
import sys
import tarfile

folder = sys.argv[1]
os.environ.update(HF_HOME=folder, HF_HUB_OFFLINE="1")
import datasets

datasets.disable_progress_bars()


def write(path, labelled):
    with tarfile.open(path, "w") as tar:
        for number, has_label in enumerate(labelled):
            for suffix in ("txt", "cls") if has_label else ("txt",):
                content = b"7" if suffix == "cls" else b"text"
                member = tarfile.TarInfo(f"{number}.{suffix}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


cases = {"the last five": [0, 0, 0, 0, 0, 1, 1, 1, 1, 1], "the first five": [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]}
cases["every second"] = [1, 0] * 5
for number, (name, labelled) in enumerate(cases.items()):
    path = f"{folder}/{number}.tar"
    write(path, labelled)
    for streaming in (False, True):
        try:
            rows = datasets.load_dataset("webdataset", data_files=path, split="train", streaming=streaming)
            read = [row.get("cls", "no column") for row in rows]
            said = f"{len(read)} examples, {sum(label == 7 for label in read)} with labels"
        except ValueError:
            said = "refused"
        print(f"labels in {name}, {'as a stream' if streaming else 'whole'}: {said}")
PYTHON
"$folder/venv/bin/python" "$folder/run.py" "$folder" | tee "$folder/output"
diff "$folder/output" <(sed -n '/^# Output:/,/^set /s/^#          //p' "$0") || { echo 'the behaviour has changed'; exit 1; }
