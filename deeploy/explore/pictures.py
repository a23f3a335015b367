"""The drawings of an exploration's report, as SVG."""

from __future__ import annotations

from collections.abc import Sequence

from deeploy.documents import Document
from deeploy.report.markup import name, number, percent, tag

_WIDTH, _LEFT, _RIGHT = 1060, 120, 20
_BAR, _GAP = 14, 10
COLOURS = 4  # of unrollings


def _open_svg(height: float, label: str, *parts: str) -> str:
    return tag("svg", *parts, viewBox=f"0 0 {_WIDTH} {height:.0f}", class_="map picture", role="group", aria_label=label)


def draw_bars(sets: Sequence[Document]) -> str:
    """Latency, energy and EDP of every set, as shares of the first one's."""
    single, parts, y = sets[0], [], 8.0
    span = _WIDTH - _LEFT - _RIGHT - 150
    for entry in sets:
        label = f"{entry['configs']} unrolling{'s' * (entry['configs'] > 1)}"
        parts.append(tag("text", label, class_="tick", x=_LEFT - 8, y=f"{y + 1.5 * _BAR + 4:.1f}", text_anchor="end"))
        for key, kind in (("cycles", "latency"), ("energy_pj", "energy"), ("edp", "edp")):
            share = entry[key] / single[key]
            about = tag("title", f"{kind}: {entry[key]:.4g}, {share:.3f} of the single unrolling's")
            parts.append(
                tag("rect", about, class_=f"bar-{kind}", x=_LEFT, y=f"{y:.1f}", width=f"{max(1.0, span * share):.1f}", height=_BAR - 2)
            )
            words = f"{kind} {percent(share, 1)}" + (f", gain {1 / share:.2f}" if kind == "edp" else "")
            parts.append(tag("text", words, class_="tick", x=f"{_LEFT + max(1.0, span * share) + 6:.1f}", y=f"{y + _BAR - 4:.1f}"))
            y += _BAR
        y += _GAP
    return _open_svg(y, "latency, energy and EDP of every set", *parts)


def draw_heat(study: Document) -> str:
    """A row per set, a cell per layer: how much of the array is at work."""
    layers, sets = study["layers"], study["sets"]
    step, tall, top = (_WIDTH - _LEFT - _RIGHT) / len(layers), 30, 6
    parts = []
    for line, entry in enumerate(sets):
        y = top + line * (tall + 4)
        label = f"{entry['configs']} unrolling{'s' * (entry['configs'] > 1)}"
        parts.append(tag("text", label, class_="tick", x=_LEFT - 8, y=y + tall / 2 + 4, text_anchor="end"))
        for at, (layer, use) in enumerate(zip(layers, entry["layers"], strict=True)):
            share = use["utilisation"] * use["temporal"]
            about = (
                f"{name(layer['name'], 80)}\n{entry['unrollings'][use['unrolling']]['label']}, innermost for {use['inner']}\n"
                f"{percent(use['utilisation'], 1)} of the elements, {percent(use['temporal'], 1)} of the cycles without a stall"
            )
            place = {"x": f"{_LEFT + at * step:.2f}", "y": y, "width": f"{max(0.8, step - 1):.2f}", "height": tall}
            full = {**place, "y": f"{y + tall * (1 - share):.2f}", "height": f"{tall * share:.2f}"}
            used = tag("rect", class_=f"use{use['unrolling'] % COLOURS}", **full)
            parts.append(tag("g", tag("rect", tag("title", about), class_="empty", **place), used, class_="block"))
    return _open_svg(top + len(sets) * (tall + 4) + 4, "utilisation of every layer", *parts)


def draw_front(points: Sequence[Document], single: Document, key: str) -> str:
    """Gain over gates beside the elements: a step for every set of the front."""
    height, bottom, top = 250, 34, 14
    most = max(max(p["overhead_gates"] for p in points), 1)
    gains = [single[key] / p[key] for p in points]
    high = max(*gains, 1.0) * 1.05 if len(gains) > 1 else 1.05

    def place(gates: float, gain: float) -> tuple[float, float]:
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * gates / most
        return x, height - bottom - (height - bottom - top) * (gain - 1) / (high - 1)

    parts = []
    for quarter in range(5):
        value = 1 + (high - 1) * quarter / 4
        _, y = place(0, value)
        parts.append(tag("line", class_="grid", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}"))
        parts.append(tag("text", f"{value:.2f}", class_="tick", x=_LEFT - 8, y=f"{y + 4:.1f}", text_anchor="end"))
        x, _ = place(most * quarter / 4, 1)
        anchor = "end" if quarter == 4 else "middle"  # the last number ends with the picture
        parts.append(tag("text", number(most * quarter / 4), class_="tick", x=f"{x:.1f}", y=height - bottom + 16, text_anchor=anchor))
    placed = [place(p["overhead_gates"], gain) for p, gain in zip(points, gains, strict=True)]
    steps = " ".join(f"{'M' if i == 0 else 'H'}{x:.1f}{' ' if i == 0 else ' V'}{y:.1f}" for i, (x, y) in enumerate(placed))
    parts.append(tag("path", d=steps, class_="front"))
    for (x, y), point, gain in zip(placed, points, gains, strict=True):
        about = f"{name(' + '.join(point['unrollings']), 120)}\n{number(point['overhead_gates'])} gates, gain {gain:.3f}"
        circle = tag("circle", class_=f"point{len(point['unrollings'])}", cx=f"{x:.1f}", cy=f"{y:.1f}", r=4.5)
        parts.append(tag("g", tag("title", about), circle, class_="block"))
    parts.append(tag("text", "gates", class_="axis", x=(_LEFT + _WIDTH - _RIGHT) / 2, y=height - 2, text_anchor="middle"))
    parts.append(tag("text", "gain", class_="axis", x=_LEFT - 50, y=height / 2, text_anchor="middle"))
    return _open_svg(height, "gain against gates beside the elements", *parts)
