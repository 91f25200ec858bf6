"""Compile the engine, C in src/axial_transformers/engine, into one library: when pip builds a wheel, or by hand.

    python hatch_build.py    # after an edit of the sources, in a clone: needs ziglang, or a compiler named by CC

CC names the compiler; without it, clang comes with the wheel of ziglang. AXIAL_TARGET names another platform than this
one, as zig names it: aarch64-linux-gnu.2.17. Where nothing compiles, the wheel has no library, and says so.
"""

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
SOURCES = ROOT / "src" / "axial_transformers" / "engine"
BUILD = ROOT / "build" / "engine"
COMPILER = "ziglang==0.17.1"
FLAGS = ["-std=c99", "-O3", "-g0", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno"]
LEVELS = {"x86_64": ("v2", "v3", "v3_vnni", "v4", "v4_vnni"), "aarch64": ("aarch64", "aarch64_dot")}
"""For each processor, the levels of its instruction set: the same source is compiled for each."""
FLAGS_OF_LEVEL = {
    "v2": ("-mcpu=x86_64_v2", "-march=x86-64-v2"),
    "v3": ("-mcpu=x86_64_v3", "-march=x86-64-v3"),
    "v3_vnni": ("-mcpu=x86_64_v3+avxvnni", "-march=x86-64-v3 -mavxvnni"),
    "v4": ("-mcpu=x86_64_v4", "-march=x86-64-v4"),
    "v4_vnni": ("-mcpu=x86_64_v4+avx512vnni", "-march=x86-64-v4 -mavx512vnni"),
    "aarch64": ("", ""),
    "aarch64_dot": ("-mcpu=generic+dotprod", "-march=armv8.2-a+dotprod"),
}
"""For zig, and for another compiler."""
WHEELS = {
    "x86_64-linux": "manylinux_2_17_x86_64",
    "aarch64-linux": "manylinux_2_17_aarch64",
    "aarch64-macos": "macosx_11_0_arm64",
    "x86_64-macos": "macosx_11_0_x86_64",
    "x86_64-windows": "win_amd64",
}
"""The platform in the name of a wheel that zig compiles; another compiler takes the libraries of this machine."""


class EngineHook(BuildHookInterface):
    """Puts the library into the wheel or, for an editable one, beside its sources."""

    def dependencies(self) -> list[str]:
        """Return what the build needs: the compiler, unless CC names one."""
        return [] if os.environ.get("CC") else [COMPILER]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the wheel is put together."""
        target = os.environ.get("AXIAL_TARGET") or this_platform()
        try:
            library = compiled(target)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"the engine was not compiled, so archives and training are slow: {error}")
            return
        if version == "editable":
            put(library)
            return
        own = re.sub(r"[-.]", "_", sysconfig.get_platform()) if os.environ.get("CC") else WHEELS[system_of(target)]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{own}"
        build_data["force_include"][str(library)] = f"axial_transformers/engine/{library.name}"


def this_platform() -> str:
    """Return zig's name of this platform, with the C library that the wheel needs at least."""
    processor = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    system = {"linux": "linux-gnu.2.17", "darwin": "macos.11.0-none", "win32": "windows-gnu"}.get(sys.platform, "")
    return f"{processor}-{system}"


def system_of(target: str) -> str:
    """Return processor and system of a target, without versions: aarch64-macos."""
    processor, system = target.split("-")[:2]
    return f"{processor}-{system.partition('.')[0]}"


def compiled(target: str) -> Path:
    """Return the library, compiled for a target; caches stay in the build folder.

    Raises:
        ValueError: no compiler is there, or it does not know the platform.
        CalledProcessError: the compiler fails.
    """
    processor, system = system_of(target).split("-")
    if processor not in LEVELS:
        raise ValueError(f"the engine has no level for {processor}")
    own = os.environ.get("CC")
    if not own and find_spec("ziglang") is None:
        raise ValueError(f"no compiler: install {COMPILER}, or set CC")
    compiler = shlex.split(own) if own else [sys.executable, "-m", "ziglang", "cc", "-target", target]
    folder = BUILD / target
    folder.mkdir(parents=True, exist_ok=True)
    objects = [folder / "levels.o"]

    def run(*words: object) -> None:
        cache = {f"ZIG_{kind}_CACHE_DIR": str(BUILD / "cache") for kind in ("LOCAL", "GLOBAL")}
        subprocess.run([*compiler, *map(str, words)], check=True, env=os.environ | cache)

    run(*FLAGS, f'-DSOURCES="{sources_digest()}"', "-c", "-o", objects[0], SOURCES / "levels.c")
    for level in LEVELS[processor]:
        of_zig, of_other = FLAGS_OF_LEVEL[level]
        flags = [f"-DLEVEL={level}", *(of_other if own else of_zig).split()]
        if level.startswith("v4"):
            flags.append("-mprefer-vector-width=512")
        objects.append(folder / f"{level}.o")
        run(*FLAGS, *flags, "-c", "-o", objects[-1], SOURCES / "engine.c")
    name = {"windows": "axial.dll", "macos": "libaxial.dylib"}.get(system, "libaxial.so")
    run("-shared", "-o", folder / name, *objects)
    return folder / name


def sources_digest() -> str:
    """Return the SHA-256 of the C sources; `engine.library` computes it alike."""
    digest = hashlib.sha256()
    for file in sorted(SOURCES.glob("*.[ch]")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def put(library: Path) -> Path:
    """Put a library beside the sources, at once: processes that have the former one keep it."""
    new = shutil.copy2(library, SOURCES / f"{library.name}.new")
    return Path(new).replace(SOURCES / library.name)


if __name__ == "__main__":
    print(put(compiled(this_platform())))
