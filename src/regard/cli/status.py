"""What is being done, for people who wait at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def status(doing: str = "") -> Iterator[Callable[[str], None]]:
    """Show what is being done, and give the function that changes it; silent where there is no terminal."""
    if not sys.stderr.isatty():
        yield lambda doing: None
        return
    from rich.console import Console

    with Console(stderr=True).status(f"[dim]{doing}[/]") as shown:
        yield lambda doing: shown.update(f"[dim]{doing}[/]")
