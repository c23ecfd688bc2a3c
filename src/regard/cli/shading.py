"""Attention for the eye, on a terminal: what a text was read as, its parts and words the brighter the heavier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from regard.tasks.classify import Sentence

LEVELS = 5
"""Shades of grey that an eye tells apart on a terminal."""
BAR = 6
"""Characters of the longest bar."""


def show_words(part: Sentence, console: Console) -> None:
    """The words of a single part, shaded by their weights."""
    console.print(_shade(part, part.weight * max((word.weight for word in part.words), default=0.0)))


def show_weights(parts: Sequence[Sentence], console: Console) -> None:
    """A line a part: its weight, as a figure and as a bar, and its words shaded by theirs."""
    from rich.text import Text

    heaviest = max((part.weight for part in parts), default=0.0)
    strongest = max((part.weight * word.weight for part in parts for word in part.words), default=0.0)
    for part in parts:
        bar = "█" * round(BAR * part.weight / heaviest) if heaviest else ""
        line = Text().append(f"{part.weight:6.1%} {bar:<{BAR}} ", style="dim")
        console.print(line.append_text(_shade(part, strongest)))


def _shade(part: Sentence, strongest: float) -> Text:
    """A text whose words have a background as strong as their weight."""
    from rich.text import Text

    shaded, place = Text(), 0
    for word, weight in part.words:
        start = max(part.text.find(word, place), place)
        shaded.append(part.text[place:start], style="default")
        level = round(LEVELS * part.weight * weight / strongest) if strongest else 0
        grey = 232 + 4 * level  # of the 256 colours
        shaded.append(word, style=f"{'black' if level > 3 else 'white'} on color({grey})" if level else "default")
        place = start + len(word)
    shaded.append(part.text[place:], style="default")
    return shaded
