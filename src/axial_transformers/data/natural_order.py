"""The order in which people number files."""

import re
from pathlib import PurePath


def natural_key(file: PurePath) -> list[str | int]:
    """A key by which batch_10 is sorted after batch_9."""
    return [int(word) if i % 2 else word for i, word in enumerate(re.split(r"(\d+)", file.name))]
