"""Memory that this process can still take."""

from contextlib import suppress
from pathlib import Path

_MEMORY, _CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def available_memory() -> int | None:
    """Bytes that can be had without swapping: of the machine, of the container, within `ulimit -v`; None: unknown."""
    found = []
    with suppress(OSError, ValueError, KeyError):
        found.append(1024 * _table(_MEMORY)["MemAvailable:"])
    with suppress(OSError, ValueError, KeyError):
        used = int((_CGROUP / "memory.current").read_text()) - _table(_CGROUP / "memory.stat")["inactive_file"]
        found.append(int((_CGROUP / "memory.max").read_text()) - used)
    with suppress(OSError, ValueError, ImportError):
        import resource  # Windows has no such module

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            found.append(limit - pages * resource.getpagesize())
    return max(0, min(found)) if found else None


def _table(path: Path) -> dict[str, int]:
    return {words[0]: int(words[1]) for line in path.read_text().splitlines() if len(words := line.split()) > 1}
