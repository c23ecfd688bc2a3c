"""A picture of all attention heads, layers by heads, as one self-contained SVG file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

CELL_WIDTH, CELL_HEIGHT, GAP = 150, 54, 6
LEFT, TOP = 84, 96
COLORS = {"positional": "#2a78b8", "rare": "#a64a97", "syntactic": "#3a8a4d", "alignment": "#b97a12", "": "#8a8f98"}
KINDS = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "cross-attention"}
LEGEND = {
    "positional": "a fixed offset", "rare": "the rarest token", "syntactic": "a grammatical relation",
    "alignment": "the translated word",
}  # fmt: skip
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.small { font-size: 10.5px; fill: #626a73 } .title { font-size: 15px; font-weight: 600 }
.role { font-weight: 600 } .cell { fill: #ffffff; stroke: #d7dbe0 } .page { fill: #f7f8fa }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e9ed } .small { fill: #9aa3ad } .cell { fill: #1d2227; stroke: #363d45 } .page { fill: #14181c }
}
"""


def draw_heads(heads: Sequence[Mapping[str, Any]], title: str) -> str:
    """The SVG text of a picture of attention heads, given as results of `HeadReport.as_dict`.

    The color of a head shows its role; the strength of the color shows how much the loss increases without the head.
    """
    most = max((head["ablation"] for head in heads), default=0.0)
    found = {role["kind"] for head in heads for role in head["roles"]}
    legend = " · ".join(f"{kind}: {meaning}" for kind, meaning in LEGEND.items() if kind in found)
    weight = f"colour strength and bar: increase of the loss without the head, up to {most:.3f} per token"
    parts = [_text(16, 28, title, "title"), _text(16, 46, legend or "no head has a role", "small")]
    parts.append(_text(16, 62, weight, "small"))
    y, columns = TOP, max(head["head"] for head in heads) + 1
    ordered = sorted(heads, key=lambda head: list(KINDS).index(head["kind"]))
    for kind, of_kind in groupby(ordered, key=lambda head: head["kind"]):
        parts.append(_text(16, y, KINDS[kind], "role"))
        y += 12
        for attention, row in groupby(of_kind, key=lambda head: head["attention"]):
            names = attention.split(".")
            layer = f"layer {names[1]}" if len(names) == 3 else names[0]
            parts.append(_text(16, y + CELL_HEIGHT / 2 + 4, layer, "small"))
            parts += [_cell(head, LEFT + head["head"] * (CELL_WIDTH + GAP), y, most) for head in row]
            y += CELL_HEIGHT + GAP
        y += 26
    width, height = max(LEFT + columns * (CELL_WIDTH + GAP) + 10, 560), y + 4
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="Attention heads of {escape(title)}"><style>{STYLE}</style>'
        f'<rect class="page" width="100%" height="100%"/>{"".join(parts)}</svg>\n'
    )


def _cell(head: Mapping[str, Any], x: float, y: float, most: float) -> str:
    role = head["roles"][0] if head["roles"] else None
    color = COLORS[role["kind"] if role else ""]
    share = max(head["ablation"], 0.0) / most if most > 0 else 0.0
    label = f"{role['name']} {role['evidence']['share']:.0%}" if role else "no role"
    facts = f"{head['attention']} head {head['head']}: {label}; loss {head['ablation']:+.4f} without it"
    below = f"{head['head']} · confidence {head['confidence']:.2f}"
    return (
        f"<g><title>{escape(facts)}</title>"
        f'<rect class="cell" x="{x}" y="{y}" width="{CELL_WIDTH}" height="{CELL_HEIGHT}" rx="6"/>'
        f'<rect x="{x}" y="{y}" width="{CELL_WIDTH}" height="{CELL_HEIGHT}" rx="6" fill="{color}" '
        f'fill-opacity="{0.06 + 0.4 * share:.2f}"/>'
        f"{_text(x + 10, y + 20, label, 'role' if role else 'small')}"
        f'<rect x="{x + 10}" y="{y + 29}" width="{(CELL_WIDTH - 20) * share:.1f}" height="3" rx="1.5" fill="{color}"/>'
        f"{_text(x + 10, y + 46, below, 'small')}</g>"
    )


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text class="{style}" x="{x}" y="{y}">{escape(text)}</text>'
