"""axial doctor: what this machine has, and whether it computes what other machines do."""

from dataclasses import dataclass

from axial_transformers.cli.console import print_rows

ARCHIVE = "c67b0ef3"
"""The first digits of the SHA-256 of 16 bundled digits, as an archive codes them by the shipped model, anywhere."""


@dataclass(frozen=True)
class Doctor:
    """Say what this machine has, and compare an archive with that of other machines.

    The exit status is 1 if it differs. Put the output into a report of an error.

        axial doctor
    """


def main(_: Doctor) -> int:
    """Run the command."""
    from axial_transformers.engine import library
    from axial_transformers.machine import machine_facts

    compiled = library()
    level = f"compiled, level {compiled.level}" if compiled else "not compiled: torch attends, NumPy makes archives"
    print_rows({**machine_facts(), "engine": level}, "machine")
    if failure := compare_archive():
        print(f"\nFAILED: {failure}. Do not trust archives, samples or bits/dim of this machine.")
        return 1
    print("\nAn archive has the bytes that it has on other machines, and is restored.")
    return 0


def compare_archive() -> str:
    """Return what is wrong with an archive that is made and restored here; empty if it is as elsewhere."""
    import hashlib

    import torch

    from axial_transformers.compression import compress, decompress, open_archive
    from axial_transformers.data import load
    from axial_transformers.models import AxialTransformer

    model = AxialTransformer.from_pretrained("digits")
    images = torch.from_numpy(load("digits", split="test").values[:16])
    archive = compress(model, images)
    digits = hashlib.sha256(open_archive(archive).content(0)).hexdigest()
    if not digits.startswith(ARCHIVE):
        return f"an archive has the SHA-256 {digits[:8]}, elsewhere {ARCHIVE}"
    if not torch.equal(decompress(model, archive), images):
        return "an archive was not restored"
    return ""
