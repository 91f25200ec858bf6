"""Each number of README names what measured it."""

import json
import sys

from tests.paths import ROOT

sys.path.append(str(ROOT / "tools"))

from evidence import Row, numbers

LISTED = json.loads((ROOT / "tools" / "evidence.json").read_text())


def test_each_number_of_readme_has_a_row_and_each_row_a_number():
    rows = [row["number"] for row in LISTED["numbers"]]
    assert {*rows} | {*LISTED["no measurements"]} >= {*numbers((ROOT / "README.md").read_text())}
    assert {*rows} <= {*numbers((ROOT / "README.md").read_text())}
    assert len(rows) == len({*rows})


def test_what_a_number_depends_on_exists():
    for row in LISTED["numbers"]:
        assert all((ROOT / path).exists() for path in row["depends"])
        assert {*Row(**row)._asdict()} == {"number", "command", "date", "commit", "depends"}


def test_numbers_are_found_outside_of_code_and_addresses():
    page = "2.712 bits, 10,000 images of 28x28, `1.5`, [a](b_2.5.png), 17 and 0.046.\n```\n3.25\n```\n2.712"
    assert numbers(page) == ["2.712", "10,000", "0.046"]
