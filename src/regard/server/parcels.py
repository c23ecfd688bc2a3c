"""Translated files that wait to be fetched: kept in memory for some minutes, under names that nobody can guess."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass
from urllib.parse import quote

MINUTES = 10.0
"""How long a file can be fetched."""
ROOM = 64_000_000
"""Bytes of all files but the newest, at most; the oldest are removed first."""


@dataclass(frozen=True)
class Parcel:
    """One file."""

    name: str
    content: bytes
    until: float


class Parcels:
    """All files that wait."""

    def __init__(self) -> None:
        self._parcels: dict[str, Parcel] = {}

    def keep(self, name: str, content: bytes) -> str:
        """Keep a file; gives back the name to fetch it by."""
        token = secrets.token_urlsafe(24)
        self._parcels[token] = Parcel(name, content, time.monotonic() + 60 * MINUTES)
        self._clear()
        return token

    def find(self, token: str) -> Parcel | None:
        """The file, if it is still there."""
        self._clear()
        return self._parcels.get(token)

    def _clear(self) -> None:
        """Remove what is too old, and what has no room. The newest always has: its reader has had no time yet."""
        now, room = time.monotonic(), ROOM
        for number, (token, parcel) in enumerate(reversed(list(self._parcels.items()))):
            size = len(parcel.content) if number else 0
            if parcel.until < now or size > room:
                del self._parcels[token]
            else:
                room -= size


def translated_name(name: str, target: str) -> str:
    """The name of a translated file: page.html becomes page.it.html. Nothing of it is a path."""
    plain = re.sub(r"[^\w .()+-]", "_", re.split(r"[/\\]", name)[-1])[-100:]
    stem, dot, suffix = plain.rpartition(".")
    return f"{stem}.{target}.{suffix}" if dot else f"{plain}.{target}"


def as_attachment(name: str) -> dict[str, str]:
    """Headers that make a browser save a file under this name, and never show it."""
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
