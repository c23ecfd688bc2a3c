"""What settings refuse."""

from __future__ import annotations

from regard.errors import SettingsError


def require(condition: bool, message: str) -> None:
    """Complain unless it holds."""
    if not condition:
        raise SettingsError(message)
