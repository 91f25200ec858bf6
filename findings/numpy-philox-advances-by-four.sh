#!/usr/bin/env bash
# advance(n) of NumPy's bit generators, to give each of many workers its place in one stream.
#
# Guess:   after advance(n), the next word is the one that random_raw() gives after n words, in all generators.
# Found:   with NumPy 2.4.6 this holds for PCG64. Philox advances its counter, each count of which is four words. What
#          is left of the current count is lost, even by advance(0). Places that are given out by numbers of words are
#          four times too far apart, and advance alone reaches only every fourth word.
# Ran on:  2026-11-28, Python 3.11, Linux, x86-64.
# Output:
#          PCG64  0 words, then advance(1): next is word 1, by counting 1
#          PCG64  0 words, then advance(3): next is word 3, by counting 3
#          PCG64  0 words, then advance(8): next is word 8, by counting 8
#          PCG64  1 words, then advance(0): next is word 1, by counting 1
#          PCG64  1 words, then advance(1): next is word 2, by counting 2
#          PCG64  6 words, then advance(2): next is word 8, by counting 8
#          Philox 0 words, then advance(1): next is word 4, by counting 1
#          Philox 0 words, then advance(3): next is word 12, by counting 3
#          Philox 0 words, then advance(8): next is word 32, by counting 8
#          Philox 1 words, then advance(0): next is word 4, by counting 1
#          Philox 1 words, then advance(1): next is word 8, by counting 2
#          Philox 6 words, then advance(2): next is word 16, by counting 8
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --progress-bar off numpy==2.4.6
cat > "$folder/run.py" <<'PYTHON'
import numpy as np

for kind in (np.random.PCG64, np.random.Philox):
    words = kind(1).random_raw(100).tolist()
    for taken, step in ((0, 1), (0, 3), (0, 8), (1, 0), (1, 1), (6, 2)):
        generator = kind(1)
        generator.random_raw(taken)
        generator.advance(step)
        place = words.index(generator.random_raw())
        print(f"{kind.__name__:6} {taken} words, then advance({step}): next is word {place}, by counting {taken + step}")
PYTHON
"$folder/venv/bin/python" "$folder/run.py" | tee "$folder/output"
diff "$folder/output" <(sed -n '/^# Output:/,/^set /s/^#          //p' "$0") || { echo 'the behaviour has changed'; exit 1; }
