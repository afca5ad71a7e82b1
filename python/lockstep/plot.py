"""The loss over steps as an SVG picture, without a library."""
from __future__ import annotations

import html
import math
from typing import Any

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 280, 56, 16, 16, 36
TRAIN, EVAL = "#4f6df5", "#e0713c"


def thinned(points: list[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most so many, the first and last among them; each stands for the mean of those it replaces."""
    if len(points) <= most:
        return points
    size = len(points) / most
    groups = [points[int(i * size):int((i + 1) * size)] for i in range(most)]
    return [points[0], *((group[len(group) // 2][0], sum(y for _, y in group) / len(group)) for group in groups[1:-1]), points[-1]]


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    if high <= low:
        return [low]
    step = 10 ** math.floor(math.log10((high - low) / about))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= about)
    first = math.ceil(low / step)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def loss_svg(history: list[dict[str, Any]], most: int = 400) -> str:
    """history: lines of metrics. Training in one color, evaluations as dots in another."""
    train = [(line["step"], line["loss"]) for line in history if _is_number(line.get("loss"))]
    evaluated = [(line["step"], line["eval_loss"]) for line in history if _is_number(line.get("eval_loss"))]
    every = train + evaluated or [(0, 0.0), (1, 1.0)]
    x0, x1 = min(x for x, _ in every), max(x for x, _ in every)
    y0, y1 = min(y for _, y in every), max(y for _, y in every)
    x1, y1 = x1 if x1 > x0 else x0 + 1, y1 if y1 > y0 else y0 + 1

    def place(x: float, y: float) -> tuple[str, str]:
        return (f"{LEFT + (x - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT):.1f}", f"{TOP + (y1 - y) / (y1 - y0) * (HEIGHT - TOP - BOTTOM):.1f}")

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
             f'font-family="sans-serif" font-size="11" fill="#888"><title>loss over steps</title>']
    for y in ticks(y0, y1):
        _, at = place(x0, y)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}" stroke="#8884"/>'
                     f'<text x="{LEFT - 6}" y="{at}" text-anchor="end" dominant-baseline="middle">{y:.4g}</text>')
    for x in ticks(x0, x1):
        at, _ = place(x, y0)
        parts.append(f'<text x="{at}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{x:.0f}</text>')
    if train:
        parts.append(f'<polyline fill="none" stroke="{TRAIN}" stroke-width="1.5" points="{" ".join(",".join(place(*p)) for p in thinned(train, most))}"/>')
    parts += [f'<circle cx="{cx}" cy="{cy}" r="3" fill="{EVAL}"/>' for cx, cy in (place(*point) for point in evaluated)]
    legend = f"loss {train[-1][1]:.4f}" if train else "loss"
    legend += f", evaluation {evaluated[-1][1]:.4f}" if evaluated else ""
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{TOP + 4}" text-anchor="end">{html.escape(legend)}</text></svg>')
    return "".join(parts)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
