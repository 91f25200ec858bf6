"""Line charts as SVG within a page."""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

Points = Sequence[tuple[float, float]]

WIDE, SMALL = (720.0, 240.0), (260.0, 170.0)
BOTTOM = 28.0
LETTER = 7.5


class ChartLine(NamedTuple):
    """A line of a chart."""

    points: Points
    best: bool = False
    """Drawn in the accent colour."""
    name: str = ""


def line_chart(
    lines: Sequence[ChartLine],
    label: str,
    limits: tuple[float, float] | None = None,
    size: tuple[float, float] = WIDE,
) -> str:
    """Return lines over steps from 0 on; `label` is for screen readers, `limits` for lowest and highest value."""
    width, height = size
    low, high = limits or limits_of([value for line in lines for _, value in line.points])
    last = max((step for line in lines for step, _ in line.points), default=0) or 1
    ticks = [tick for tick in _ticks(low, high) if low <= tick <= high]
    left = 10 + LETTER * max((len(_number(tick)) for tick in ticks), default=0)
    floor = height - BOTTOM

    def to_pixels(step: float, value: float) -> tuple[float, float]:
        up = (min(max(value, low), high) - low) / (high - low)
        return left + (width - left) * step / last, floor * (1 - up)

    marks = []
    for tick in ticks:
        _, y = to_pixels(0, tick)
        marks.append(f'<line x1="{left:.1f}" x2="{width:.0f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        marks.append(f'<text x="{left - 6:.1f}" y="{y:.1f}" dy="4" text-anchor="end">{_number(tick)}</text>')
    marks.append(f'<text x="{left:.1f}" y="{height - 6:.0f}">step 0</text>')
    marks.append(f'<text x="{width:.0f}" y="{height - 6:.0f}" text-anchor="end">step {last:,.0f}</text>')
    for line in lines:
        pixels = [to_pixels(*point) for point in line.points]
        marks.append(_drawn(line, pixels))
        if pixels and line.name:
            x, y = pixels[-1]
            at = min(y + 18, floor - 4) if line.best else max(y - 8, 12.0)
            kind = "best" if line.best else "plain"
            marks.append(f'<text class="{kind}" x="{x:.1f}" y="{at:.1f}" text-anchor="end">{escape(line.name)}</text>')
    kind = "wide" if size == WIDE else "small"
    box = f'class="{kind}" viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(label)}"'
    return f"<svg {box}>{''.join(marks)}</svg>"


def limits_of(values: Sequence[float]) -> tuple[float, float]:
    """Return the limits of values without their highest tenth, widened."""
    if not values:
        return 0.0, 1.0
    ordered = sorted(values)
    low, most, highest = ordered[0], ordered[int(0.9 * (len(ordered) - 1))], ordered[-1]
    high = min(highest, most + (most - low) / 4) if most > low else highest
    if high > low:
        return low, high
    return low - (abs(low) / 10 or 1.0), low + (abs(low) / 10 or 1.0)


def _drawn(line: ChartLine, pixels: Sequence[tuple[float, float]]) -> str:
    kind = "best" if line.best else "plain"
    if len(pixels) == 1:
        return '<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="3"/>'.format(kind, *pixels[0])
    path = " L".join(f"{x:.1f},{y:.1f}" for x, y in pixels)
    return f'<path class="{kind}" d="M{path}"/>' if pixels else ""


def _ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(each for each in (1, 2, 5, 10) if each * power >= 0.99 * rough)
    return [step * i for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
