"""Numbers in words: counts, rates and times."""


def counted(number: int, noun: str) -> str:
    """Return a number and its noun: 1 file, 2,000 images."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Return the plural of a noun: files, series."""
    return noun if noun.endswith("s") else noun + "s"


def engineering(number: float) -> str:
    """Return three digits and a prefix: 1.23 k."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g} {prefix}"
    return f"{number:.3g} "


def duration(seconds: float) -> str:
    """Return seconds, minutes, hours or days."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:,.1f} days"
