"""Drawings of the study of many chips, as SVG: bars of where time goes, energy over time, speedup over chips."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 360, 64, 44, 40
COLOURS = ("#3b6ea5", "#e0a030", "#b0413e", "#5a9a5a")


@dataclass(frozen=True)
class Bar:
    """Cycles by kind on so many chips, and how much faster that is than one."""

    label: str
    parts: Mapping[str, float]
    speedup: float


def _text(x: float, y: float, text: str, anchor: str = "middle", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-family="sans-serif">{escape(text)}</text>'


def _line(points: Sequence[tuple[float, float]], colour: str, dash: str = "") -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-dasharray="{dash}"/>'


def _page(title: str, parts: Sequence[str]) -> str:
    frame = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
    ground = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    axes = _line([(LEFT, TOP), (LEFT, HEIGHT - BOTTOM), (WIDTH - LEFT, HEIGHT - BOTTOM)], "black")
    return "\n".join([frame, ground, _text(WIDTH / 2, 20, title, size=14), axes, *parts, "</svg>", ""])


def breakdown(title: str, bars: Sequence[Bar]) -> str:
    """A bar per number of chips, split by where the first chip's cycles go, as a share of the single chip's; a line of speedups."""
    most = max(sum(bar.parts.values()) for bar in bars)
    tall, step = HEIGHT - BOTTOM - TOP, (WIDTH - 2 * LEFT) / len(bars)
    fastest = max(bar.speedup for bar in bars)
    drawn: list[str] = []
    curve: list[tuple[float, float]] = []
    for number, bar in enumerate(bars):
        x, y = LEFT + (number + 0.25) * step, float(HEIGHT - BOTTOM)
        for colour, (kind, cycles) in zip(COLOURS, bar.parts.items(), strict=True):
            high = tall * cycles / most
            y -= high
            about = f"<title>{escape(kind)}: {cycles:.0f} cycles</title>"
            drawn.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{step / 2:.1f}" height="{high:.1f}" fill="{colour}">{about}</rect>')
        drawn.append(_text(x + step / 4, HEIGHT - BOTTOM + 18, f"{bar.label} chip{'s' * (bar.label != '1')}"))
        curve.append((x + step / 4, HEIGHT - BOTTOM - tall * bar.speedup / fastest * 0.95))
        drawn.append(_text(curve[-1][0], curve[-1][1] - 8, f"{bar.speedup:.1f}x"))
    drawn.append(_line(curve, "black", "4 3"))
    for number, (colour, kind) in enumerate(zip(COLOURS, bars[0].parts, strict=True)):
        x = LEFT + (WIDTH - 2 * LEFT) * number / len(COLOURS)
        drawn.append(f'<rect x="{x:.1f}" y="{HEIGHT - 17}" width="10" height="10" fill="{colour}"/>')
        drawn.append(_text(x + 16, HEIGHT - 8, kind, "start"))
    drawn.append(_text(14, TOP - 6, f"{most / 1e6:.2f} M cycles", "start"))
    return _page(title, drawn)


def _scale(value: float, low: float, high: float, begin: float, end: float) -> float:
    """A place on a logarithmic axis."""
    return begin + (end - begin) * (math.log(value) - math.log(low)) / max(math.log(high) - math.log(low), 1e-9)


def energies(title: str, marks: Sequence[tuple[str, float, float]]) -> str:
    """A mark per number of chips: milliseconds to the right, millijoules upwards, both logarithmic."""
    times, spent = [ms for _, ms, _ in marks], [mj for _, _, mj in marks]
    drawn = []
    for label, ms, mj in marks:
        x = _scale(ms, min(times) / 1.3, max(times) * 1.3, LEFT, WIDTH - LEFT)
        y = _scale(mj, min(spent) / 1.3, max(spent) * 1.3, HEIGHT - BOTTOM, TOP)
        drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{COLOURS[2]}"/>')
        side = 1 if x < WIDTH / 2 else -1
        drawn.append(_text(x + 8 * side, y + 4, f"{label}: {ms:.3g} ms, {mj:.3g} mJ", "start" if side > 0 else "end"))
    drawn += [_text(WIDTH / 2, HEIGHT - 8, "ms"), _text(LEFT - 10, TOP, "mJ", "end")]
    return _page(title, drawn)


def speedups(lines: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Speedup over chips, both logarithmic, and the diagonal of a linear one."""
    most = max(chips for line in lines.values() for chips, _ in line)
    high = max(most, *(gain for line in lines.values() for _, gain in line))

    def place(chips: float, gain: float) -> tuple[float, float]:
        return _scale(chips, 1, most, LEFT, WIDTH - LEFT), _scale(max(gain, 1), 1, high, HEIGHT - BOTTOM, TOP)

    drawn = [_line([place(1, 1), place(most, most)], "grey", "2 4")]
    for number, (title, line) in enumerate(lines.items()):
        drawn.append(_line([place(chips, gain) for chips, gain in line], COLOURS[number % len(COLOURS)]))
        for chips, gain in line:
            x, y = place(chips, gain)
            drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{COLOURS[number % len(COLOURS)]}"/>')
            drawn.append(_text(x, y - 8, f"{gain:.1f}", size=10))
        drawn.append(_text(LEFT + 12, TOP + 14 * (number + 1), title, "start", 11).replace("<text", f'<text fill="{COLOURS[number]}"'))
    drawn += [_text(place(n, 1)[0], HEIGHT - BOTTOM + 16, str(n)) for n in {chips for line in lines.values() for chips, _ in line}]
    return _page("speedup over one chip", drawn)
