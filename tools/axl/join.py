"""Join the parts of the command axl into one C file, which is all that a compiler needs.

python tools/axl/join.py build/axl.c
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
ENGINE = HERE.parents[1] / "src" / "axial_transformers" / "engine"


def joined(source: Path, done: set[str]) -> str:
    """Return a source with the contents of the files of the engine that it includes, each once."""

    def included(found: re.Match[str]) -> str:
        name = found[1]
        if name in done:
            return ""
        done.add(name)
        return joined(ENGINE / name, done)

    return re.sub(r'^#include "(\w+\.h)"\n', included, source.read_text(encoding="utf-8"), flags=re.MULTILINE)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(joined(HERE / "axl.c", set()), encoding="utf-8")
