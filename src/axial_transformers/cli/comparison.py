"""An archive beside other codecs, weights counted: `axial compress --compare`."""

import math
from importlib.util import find_spec
from typing import Any

from axial_transformers.cli.console import print_rows
from axial_transformers.compression.files.file_archive import Written
from axial_transformers.pictures.other_codecs import coded_sizes
from axial_transformers.progress import bar
from axial_transformers.wording import counted, plural


def compared(written: Written, weights: int, kind: str) -> dict[str, Any]:
    """Return bytes and bits/dim of the archive, without the files that it keeps, and of other codecs, as a JSON object.

    Args:
        weights: bytes of the model on disk, which count too; 0 where the archive holds it.
        kind: what an example is called.
    """
    codecs = coded_sizes(written.images.sizes, written.images.example, bar)
    archive = written.size - sum(written.file_sizes)
    best = [min((size, f"{name}, {way}") for way, size in ways.items()) for name, ways in codecs.items()]
    sizes = {"archive without weights": archive, "weights on disk": weights} if weights else {}
    sizes |= {"archive, weights counted": archive + weights} | {row: size for size, row in best}
    other, row = min(best)
    saved = (other - (archive - written.model_size)) / written.examples  # of an example, by an archive without weights
    return {
        "rows": {row: {"bytes": size, "bits_per_dim": 8 * size / written.images.values} for row, size in sizes.items()},
        "codecs": codecs,
        "pays_from": (needed := math.ceil((written.model_size + weights) / saved) if saved > 0 else None),
        "verdict": _verdict(archive + weights, other, row, needed, kind),
    }


def print_comparison(found: dict[str, Any], kind: str) -> None:
    """Print rows of bytes and bits/dim, and a line that names the smallest of them."""
    rows = {row: f"{each['bytes']:>13,}  {each['bits_per_dim']:>8.4f}" for row, each in found["rows"].items()}
    print_rows({"": f"{'bytes':>13}  bits/dim", **rows}, f"the same {plural(kind)} in other codecs")
    if find_spec("imagecodecs") is None:
        print("not compared with JPEG XL: pip install 'axial-transformers[codecs]'")
    print(found["verdict"])


def _verdict(archive: int, other: int, codec: str, needed: int | None, kind: str) -> str:
    if archive < other:
        return f"The archive is smallest of these, weights counted: {100 * (1 - archive / other):.1f} % below {codec}."
    smaller = f"{codec} is smaller: {100 * (1 - other / archive):.1f} % below the archive, weights counted."
    if needed is None:
        return f"{smaller} More {plural(kind)} would not change that: they take fewer bytes there, too."
    unit = 10 ** max(0, len(str(needed)) - 2)
    return f"{smaller} The archive pays from about {counted(-(-needed // unit) * unit, kind)} on."
