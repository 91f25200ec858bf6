"""List each number of README with the command, the date and the commit of its measurement.

    python tools/evidence.py

tools/evidence.json has a row for each number: what it depends on are files or folders, such as a model of the package,
a recipe or the engine. The command ends with status 1 if README has a number without a row, if a row's number is not on
README, or if something that a number depends on has changed since its commit. It runs before a release, not in CI.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
CODE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)|<[^>]*>", re.DOTALL)
"""What is no measurement: code, addresses."""
NUMBER = re.compile(r"(?<![\w.:-])\d[\d,]*\.\d+|\d{1,3}(?:,\d{3})+")
"""A number with a fraction, or one above 999."""


class Row(NamedTuple):
    """The evidence for one number."""

    number: str
    command: str
    date: str
    commit: str
    depends: list[str]

    def changes(self) -> list[str]:
        """Return the commits that changed, since the measurement, something that the number depends on."""
        if not self.depends:
            return []
        span = f"{self.commit}..HEAD"
        log = subprocess.run(
            ["git", "log", "--format=%h %s", span, "--", *self.depends],
            cwd=ROOT, check=True, capture_output=True, text=True,
        )  # fmt: skip
        return log.stdout.splitlines()


def numbers(text: str) -> list[str]:
    """Return the numbers of a page, in order, each once."""
    return [*dict.fromkeys(NUMBER.findall(CODE.sub(" ", text)))]


def main() -> int:
    """Print the evidence, and what is wrong with it; return 1 if something is."""
    listed = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    rows = [Row(**fields) for fields in listed["numbers"]]
    ignored = set(listed["no measurements"])
    on_page = numbers(README.read_text(encoding="utf-8"))
    wrong = [f"{number}: no row says what measured it" for number in on_page if number not in ignored]
    for row in rows:
        complaint = f"{row.number}: no row says what measured it"
        if complaint in wrong:
            wrong.remove(complaint)
        else:
            wrong.append(f"{row.number}: not on README any more")
        print(f"{row.number:>12}  {row.date}  {row.commit[:8]}  {row.command}")
        wrong += [f"{row.number}: measured before {change}" for change in row.changes()]
    for line in wrong:
        print(line, file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
