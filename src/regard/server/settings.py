"""Settings of the server. The string under a field is its help on the command line."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Literal

from regard.errors import SettingsError


@dataclass(frozen=True)
class ServerSettings:
    """Address, API keys, engine and limits of `regard serve`."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 or :: also accepts connections from other machines."""
    port: int = 5000
    """Port to listen on; 0: a free port is chosen and printed."""
    keys: str = ""
    """File of API keys, created by --new-key; empty: no key is required."""
    engine: Literal["auto", "torch", "ctranslate2"] = "auto"
    """Engine that translates. auto: CTranslate2 if it is installed and supports the settings, else torch."""
    quantization: Literal["int8", "int16", "float32"] = "int8"
    """Number format of the weights in CTranslate2."""
    threads: int = 0
    """Number of compute threads; 0: one per core."""
    batch: int = 16
    """Maximum number of sentences decoded together."""
    queue: int = 512
    """Maximum number of waiting sentences; further requests are refused until there is room (429)."""
    timeout: float = 30.0
    """Time limit for a response in seconds, including waiting (503 after it)."""
    document_timeout: float = 300.0
    """Time limit for the translation of a file, in seconds."""
    body_timeout: float = 15.0
    """Time limit in seconds for the head of a request to arrive, and then for its body (408 after it)."""
    send_timeout: float = 30.0
    """Seconds in which a client must read a part of the response (at least 16 kB); otherwise it is disconnected."""
    body_bytes: int = 1_000_000
    """Maximum size of a request body in bytes (413 if it is larger)."""
    document_bytes: int = 4_000_000
    """Maximum size in bytes of a file to translate, or of a request with pictures."""
    texts: int = 128
    """Maximum number of texts in one request."""
    pictures: int = 16
    """Maximum number of pictures in one request."""
    characters: int = 20_000
    """Maximum number of characters in one request, over all its texts."""
    nbest: int = 8
    """Maximum number of translations of one text."""
    traced: int = 400
    """Maximum number of characters of an inspected text; the size of the result grows with its square."""
    inspect_work: float = 3e11
    """Maximum number of multiplications of an inspection, estimated from its tokens, its analyses and the model (400 if
    it needs more); about a minute of one core."""
    requests: int = 1000
    """Maximum number of open requests (503 if there are more)."""
    allow_host: tuple[str, ...] = ()
    """Accepted name in the Host header; may be repeated; *: all. Default: on a loopback address only the names of this
    machine (so that no web site can reach the server under its own name), else all."""
    allow_origin: tuple[str, ...] = ()
    """Web site whose pages may use the API, e.g. https://example.org; may be repeated; *: all sites."""
    quiet: bool = False
    """Do not log requests. The log never contains texts of requests."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise SettingsError(f"--port must be from 0 to 65535, not {self.port}")
        counts = ("batch", "queue", "texts", "pictures", "characters", "nbest", "traced", "requests")
        least = {"threads": 0, **dict.fromkeys(counts, 1), "body_bytes": 1000, "document_bytes": 1000}
        for name, number in least.items():
            if getattr(self, name) < number:
                raise SettingsError(f"--{name.replace('_', '-')} must be at least {number}, not {getattr(self, name)}")
        for name in ("timeout", "document_timeout", "body_timeout", "send_timeout", "inspect_work"):
            if not getattr(self, name) > 0:
                raise SettingsError(f"--{name.replace('_', '-')} must be above 0, not {getattr(self, name)}")

    @property
    def hosts(self) -> frozenset[str] | None:
        """Names that are accepted in the Host header; None: all names."""
        if self.allow_host:
            return None if "*" in self.allow_host else frozenset(name.lower() for name in self.allow_host)
        return frozenset({"localhost", "127.0.0.1", "::1", self.host.lower()}) if self.is_local else None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server (its address is a loopback address)."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
