#!/usr/bin/env bash
# A fraction where a command by cyclopts takes an int.
#
# Guess:   --count 2.5 is an error, as in argparse and click.
# Found:   cyclopts 5.4.0 rounds it, halves to the even neighbour: 1.5 and 2.5 both become 2, 0.5 becomes 0. Nothing is
#          said. 1e3 is an error. A validator sees the rounded number only.
# Ran on:  2026-11-29, Python 3.11, Linux, x86-64.
# Output:
#          --count 0.5: 0
#          --count 1.5: 2
#          --count 2.5: 2
#          --count -0.7: -1
#          --count 1e3: CoercionError
#          validator of 2.5 sees 2
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --progress-bar off cyclopts==5.4.0
cat > "$folder/run.py" <<'PYTHON'
from typing import Annotated

from cyclopts import App, CoercionError, Parameter

app = App(result_action="return_value")


@app.default
def main(count: int) -> int:
    return count


for word in ("0.5", "1.5", "2.5", "-0.7", "1e3"):
    try:
        found = app([f"--count={word}"], exit_on_error=False, print_error=False)
    except CoercionError as error:
        found = type(error).__name__
    print(f"--count {word}: {found}")

checked = App(result_action="return_value")


@checked.default
def with_validator(count: Annotated[int, Parameter(validator=lambda _, value: print("validator of 2.5 sees", value))]) -> None:
    """Take a number."""


checked(["--count", "2.5"], exit_on_error=False, print_error=False)
PYTHON
"$folder/venv/bin/python" "$folder/run.py" | tee "$folder/output"
diff "$folder/output" <(sed -n '/^# Output:/,/^set /s/^#          //p' "$0") || { echo 'the behaviour has changed'; exit 1; }
