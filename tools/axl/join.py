"""Join the parts of the command axl into one C file, which is all that a compiler needs.

python tools/axl/join.py build/axl.c                    reads archives that hold their model
python tools/axl/join.py build/axl.c photos32 digits    and those that name these models of the package
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1] / "src" / "axial_transformers"
ENGINE = PACKAGE / "engine"
NO_MODELS = "static const ShippedModel shipped_models[] = {{NULL, {NULL, 0}, {NULL, 0}}};\n"
"""The line of axl.c in whose place the models are written."""


def joined(source: Path, done: set[str]) -> str:
    """Return a source with the contents of the files of the engine that it includes, each once."""

    def included(found: re.Match[str]) -> str:
        name = found[1]
        if name in done:
            return ""
        done.add(name)
        return joined(ENGINE / name, done)

    return re.sub(r'^#include "(\w+\.h)"\n', included, source.read_text(encoding="utf-8"), flags=re.MULTILINE)


def array(name: str, content: bytes) -> str:
    """Return a C array of bytes."""
    return f"static unsigned char {name}[] = {{{','.join(map(str, content))}}};\n"


def with_models(source: str, names: Sequence[str]) -> str:
    """Return the source with the models of these names in it."""
    arrays, rows = "", ""
    for name in names:
        folder = PACKAGE / "pretrained" / name
        _, text = (folder / "archive.txt").read_bytes().splitlines()
        tensors = (folder / "model.safetensors").read_bytes()
        arrays += array(f"{name}_text", text) + array(f"{name}_tensors", tensors)
        rows += f'    {{"{name}", {{{name}_text, {len(text)}}}, {{{name}_tensors, {len(tensors)}}}}},\n'
    table = f"static const ShippedModel shipped_models[] = {{\n{rows}    {{NULL, {{NULL, 0}}, {{NULL, 0}}}},\n}};\n"
    assert NO_MODELS in source
    return source.replace(NO_MODELS, arrays + table)


if __name__ == "__main__":
    target, *models = sys.argv[1:]
    Path(target).write_text(with_models(joined(HERE / "axl.c", set()), models), encoding="utf-8")
