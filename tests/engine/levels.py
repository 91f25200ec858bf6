"""The levels of this processor for which the engine is compiled."""

import ctypes
import sys

import axial_transformers.engine  # noqa: F401

door = sys.modules["axial_transformers.engine.library"]  # the package's name of it is the function
LIBRARY = door.FOLDER / door.NAME


def levels() -> list[str]:
    return [name for name in door.LEVELS if ctypes.CDLL(str(LIBRARY)).axial_has_level(name.encode())]
