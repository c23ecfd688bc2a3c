"""What settings refuse."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from regard.errors import SettingsError


def require(condition: bool, message: str) -> None:
    """Complain unless it holds."""
    if not condition:
        raise SettingsError(message)


def require_finite(settings: Any, section: str) -> None:
    """Complain of numbers that are none."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        require(not isinstance(value, float) or math.isfinite(value), f"{section}.{field.name} must be a finite number")
