"""Large numbers and times, for people."""

from __future__ import annotations


def amount(value: float) -> str:
    """E.g. 1.6 M, 29 T; a unit may follow at once."""
    for power, letter in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:.{0 if value >= 10 ** (power + 1) else 1}f} {letter}"
    return f"{value:.0f} "


def duration(seconds: float) -> str:
    """For people: 40 s, 3.5 min, 12 min, 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 600:
        return f"{seconds / 60:.1f} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
