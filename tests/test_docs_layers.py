"""The examples of docs/layers run as they stand."""

import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[1] / "docs" / "layers").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_example_of_a_page_runs(page):
    examples = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert examples
    for example in examples:
        exec(example, {})
