"""Settings of the server: frozen, and the only home of their defaults. The text under a field is its help."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Literal

from regard.errors import SettingsError


@dataclass(frozen=True)
class ServerSettings:
    """How `regard serve` listens, what it lets in, and how much of it."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 or :: lets other machines in."""
    port: int = 5000
    """Port to listen on; 0: any free one, which is printed."""
    keys: str = ""
    """File of API keys, made by --new-key; empty: everyone may ask."""
    engine: Literal["auto", "torch", "ctranslate2"] = "auto"
    """auto: CTranslate2 in int8 where it is installed and can do what is asked, else torch."""
    quantization: Literal["int8", "int16", "float32"] = "int8"
    """Arithmetic of CTranslate2."""
    threads: int = 0
    """Threads that compute; 0: one for each core."""
    batch: int = 16
    """Sentences decoded together, at most."""
    queue: int = 512
    """Sentences that may wait; beyond it a request is told to come again later (429)."""
    timeout: float = 30.0
    """Seconds that a request may take, waiting included (503 beyond)."""
    document_timeout: float = 300.0
    """Seconds that the translation of a file may take."""
    body_timeout: float = 15.0
    """Seconds in which a request must have arrived (408 beyond); its head has as long."""
    body_bytes: int = 1_000_000
    """Size of a request's body, at most (413 beyond)."""
    document_bytes: int = 4_000_000
    """Size of a file to translate, at most."""
    texts: int = 128
    """Texts in one request, at most."""
    characters: int = 20_000
    """Characters in one request, all its texts together, at most."""
    nbest: int = 8
    """Translations of one text, at most."""
    traced: int = 400
    """Characters of a text to look inside, at most: what is seen grows with the square of its length."""
    requests: int = 1000
    """Requests being answered at a time, at most (503 beyond)."""
    allow_host: tuple[str, ...] = ()
    """Name by which the server may be called; may be repeated. None: on a loopback address only names of this machine
    (so that no web page can reach it under a name of its own), else any."""
    allow_origin: tuple[str, ...] = ()
    """Web site, e.g. https://example.org, whose pages may use the API from a browser; may be repeated; *: all."""
    quiet: bool = False
    """Write no line for each request. No line ever holds a text."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise SettingsError(f"--port must be from 0 to 65535, not {self.port}")
        self._require("threads", 0)
        for name in ("batch", "queue", "texts", "characters", "nbest", "traced", "requests"):
            self._require(name, 1)
        for name in ("body_bytes", "document_bytes"):
            self._require(name, 1000)
        for name in ("timeout", "document_timeout", "body_timeout"):
            if not getattr(self, name) > 0:
                raise SettingsError(f"--{name.replace('_', '-')} must be above 0")

    def _require(self, name: str, least: int) -> None:
        if getattr(self, name) < least:
            raise SettingsError(f"--{name.replace('_', '-')} must be at least {least}, not {getattr(self, name)}")

    @property
    def hosts(self) -> frozenset[str] | None:
        """Names by which the server may be called; None: any."""
        if self.allow_host:
            return None if "*" in self.allow_host else frozenset(name.lower() for name in self.allow_host)
        return frozenset({"localhost", "127.0.0.1", "::1", self.host.lower()}) if self.is_local else None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
