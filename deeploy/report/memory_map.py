"""A memory over an inference, drawn: steps to the right, addresses upwards, a rectangle per buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deeploy.documents import Document
from deeploy.report.blocks import distinct_names, layer_labels
from deeploy.report.markup import name, number, tag, text

LEFT, RIGHT, TOP, BOTTOM = 78, 16, 22, 34  # margins in pixels
HEIGHT = 300
NARROWEST, WIDEST = 9, 90  # pixels of a step
USUAL = 1010  # pixels of a drawing with few steps
TIGHT = 0.95  # of a capacity: a peak above that is worth a warning
CLOSE = 1.6  # a capacity up to this many peaks is drawn to scale
TINTS = 3
GLYPH, WIDE = 6.3, 10.5  # pixels of a letter, and of a wide one
LABEL = 13  # pixels of height that a label needs


@dataclass(frozen=True)
class _Frame:
    """From steps and bytes to pixels."""

    steps: int
    step: float
    top_bytes: float

    @property
    def width(self) -> float:
        return LEFT + RIGHT + self.steps * self.step

    @property
    def visible(self) -> float:
        """The right end of what is seen of a wide drawing before it is scrolled."""
        return min(self.width, USUAL) - RIGHT

    def x(self, step: float) -> float:
        return LEFT + step * self.step

    def y(self, count: float) -> float:
        return TOP + HEIGHT * (1 - count / self.top_bytes)


def memory_map(level: str, use: Document, buffers: Sequence[Document], calls: Sequence[Document]) -> str:
    """The SVG of one level, or a sentence where it holds nothing but constants; empty where it holds nothing.

    Args:
        use: the level's entry of ``memory`` in ``deploy.json``.
        buffers: all entries of ``buffers``.
    """
    inside = [b for b in buffers if b["level"] == level and b["bytes"]]
    if not inside and not use["peak"]:
        return ""
    constants = use["constants"] if use["capacity"] is not None else 0
    if not inside:
        return tag("p", f"{number(constants)} bytes of constants, of {number(use['capacity'])}; nothing else lies here.", class_="note")
    peak, capacity = max(1, use["peak"]), use["capacity"]
    is_close = capacity is not None and capacity <= CLOSE * peak
    steps = max(1, len(calls))
    step = min(WIDEST, max(NARROWEST, (USUAL - LEFT - RIGHT) / steps))
    frame = _Frame(steps, step, max(peak, capacity if is_close else 0) * 1.06)
    parts = [_draw_axes(frame, calls)]
    short = distinct_names([buffer["name"].split("=")[0] for buffer in inside])
    layers = layer_labels(calls) or [""]
    parts += [_draw_buffer(frame, index, buffer, label, layers) for index, (buffer, label) in enumerate(zip(inside, short, strict=True))]
    if constants:
        parts.append(_draw_constants(frame, use["peak"] - constants, constants))
    parts += _draw_limits(frame, use, is_close)
    size = f"0 0 {frame.width:.0f} {TOP + HEIGHT + BOTTOM}"
    least = frame.width if frame.width > USUAL + 1 else 0.7 * frame.width
    style = f"min-width:{least:.0f}px;max-width:{frame.width:.0f}px"
    return tag("svg", *parts, viewBox=size, class_="map", style=style, role="img", aria_label=f"memory map of {level}")


def _draw_axes(frame: _Frame, calls: Sequence[Document]) -> str:
    parts = []
    for tick in _round_ticks(frame.top_bytes, 5):
        y = frame.y(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{frame.width - RIGHT:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number(tick)}</text>')
    every = next(n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10**9) if n * frame.step >= 22)
    bottom = TOP + HEIGHT
    for step in range(0, len(calls), every):
        x = frame.x(step + 0.5)
        about = tag("title", f"step {step}: {name(calls[step]['node'])}")
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{step}{about}</text>')
    middle = (LEFT + frame.visible) / 2
    parts.append(f'<text class="axis" x="{middle:.0f}" y="{bottom + 30}" text-anchor="middle">step</text>')
    parts.append(f'<text class="axis" x="{LEFT - 6}" y="{TOP - 9}" text-anchor="end">bytes</text>')
    parts.append(f'<line class="base" x1="{LEFT}" x2="{frame.width - RIGHT:.1f}" y1="{bottom}" y2="{bottom}"/>')
    return "".join(parts)


def _round_ticks(most: float, count: int) -> list[int]:
    """Round numbers from 0 up to ``most``."""
    unit = 1
    while most / unit > count:
        unit = next(m for m in _round_numbers() if m > unit)
    return list(range(0, int(most) + 1, unit))


def _round_numbers() -> list[int]:
    return [m * 10**e for e in range(0, 12) for m in (1, 2, 5)]


def _draw_buffer(frame: _Frame, index: int, buffer: Document, short: str, layers: Sequence[str]) -> str:
    first, last = max(0, buffer["first"]), min(frame.steps - 1, buffer["last"])
    x, width = frame.x(first), (last - first + 1) * frame.step
    y, height = frame.y(buffer["offset"] + buffer["bytes"]), HEIGHT * buffer["bytes"] / frame.top_bytes
    begin = "before the inference" if buffer["first"] < 0 else f"step {first} ({name(layers[first], 40)})"
    end = "after it" if buffer["last"] >= frame.steps else f"step {last} ({name(layers[last], 40)})"
    when = f"in {begin}" if buffer["first"] == buffer["last"] else f"from {begin} to {end}"
    title = (
        f"{name(buffer['name'], 80)}\n{text(buffer['kind'])}, {number(buffer['bytes'])} bytes"
        f" at {number(buffer['offset'])} to {number(buffer['offset'] + buffer['bytes'])}\n{when}"
    )
    # A gap of half a pixel parts neighbours; what is thinner than a pixel stays visible.
    shape = f'x="{x + 0.5:.1f}" y="{y + 0.25:.2f}" width="{max(1, width - 1):.1f}" height="{max(0.8, height - 0.5):.2f}"'
    label = ""
    shown = _fit_label(short, width - 10) if height >= LABEL else ""
    if shown:
        label = f'<text class="label" x="{x + 5:.1f}" y="{y + height / 2 + 4:.1f}">{shown}</text>'
    colour = f"{text(buffer['kind'])} tint{index % TINTS}"
    return f'<g class="block"><rect class="{colour}" {shape}><title>{title}</title></rect>{label}</g>'


def _fit_label(full: str, room: float) -> str:
    """As much of a name as fits into some pixels: its end, in which names differ. Of a window that is the operand."""
    pixels = [WIDE if letter in "mwMW\u2026" or ord(letter) > 255 else GLYPH for letter in full]
    if sum(pixels) <= room:
        return name(full, 200)
    start = next((at for at in range(len(full)) if WIDE + sum(pixels[at:]) <= room), len(full))
    return f"\u2026{name(full[start:], 200)}" if len(full) - start > 1 else ""


def _draw_constants(frame: _Frame, at: int, count: int) -> str:
    """Constants that always lie in the memory, outside of the arena."""
    y, height = frame.y(at + count), HEIGHT * count / frame.top_bytes
    title = f"constants, beside the arena\n{number(count)} bytes, always there"
    width = frame.steps * frame.step
    shape = f'x="{LEFT}" y="{y:.2f}" width="{width:.1f}" height="{max(0.8, height):.2f}"'
    label = f'<text class="label" x="{LEFT + 6}" y="{y + height / 2 + 4:.1f}">constants, beside the arena</text>' if height >= LABEL else ""
    return f'<g class="beside"><rect class="constant tint0" {shape}><title>{title}</title></rect>{label}</g>'


def _draw_limits(frame: _Frame, use: Document, is_close: bool) -> list[str]:
    """Peak, lower bound and capacity."""
    end = frame.width - RIGHT
    parts = []
    is_least = use["peak"] == use["lower_bound"]
    capacity = f"capacity{' tight' if use['capacity'] is not None and use['peak'] > TIGHT * use['capacity'] else ''}"
    shown = [("peak", use["peak"], f"peak{' = lower bound' if is_least else ''} {number(use['peak'])}")]
    if not is_least:
        shown.append(("bound", use["lower_bound"], f"lower bound {number(use['lower_bound'])}"))
    if is_close:
        shown.append((capacity, use["capacity"], f"capacity {number(use['capacity'])}"))
    for kind, count, words in shown:
        y = frame.y(count)
        parts.append(f'<line class="{kind}" x1="{LEFT}" x2="{end:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        above = kind != "bound" and not (kind == "peak" and is_close and frame.y(count) - frame.y(use["capacity"]) < 14)
        anchor, x = ("start", LEFT + 4) if kind == capacity else ("end", frame.visible - 4)
        parts.append(f'<text class="mark {kind}" x="{x:.1f}" y="{y + (-4 if above else 12):.1f}" text-anchor="{anchor}">{words}</text>')
    if use["capacity"] is not None and not is_close:
        share = f"{100 * use['peak'] / use['capacity']:.1f}"
        words = f"\u25b2 capacity {number(use['capacity'])}: {share} % used"
        parts.append(f'<text class="mark capacity" x="{LEFT + 4}" y="{TOP - 9}" text-anchor="start">{words}</text>')
    return parts
