"""The order in which people number files."""

import re
from pathlib import PurePath


def natural(file: PurePath) -> list[str | int]:
    """Sorts batch_10 after batch_9."""
    return [int(word) if i % 2 else word for i, word in enumerate(re.split(r"(\d+)", file.name))]
