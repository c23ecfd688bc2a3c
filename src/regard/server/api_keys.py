"""API keys: a file of JSON lines with a salted hash of each key, never the key itself.

A key is `rg-NAME-SECRET`; the secret has 256 random bits. It cannot be guessed, so a fast hash is sufficient (passwords
would need a slow one). Each key has its own salt, and hashes are compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import secrets
from pathlib import Path

from regard.errors import SettingsError

logger = logging.getLogger("regard.server")
_KEY = re.compile(r"rg-(?P<name>[0-9a-f]{8})-(?P<secret>[A-Za-z0-9_-]{43})")


class ApiKeys:
    """The salted hashes of the API keys in a key file; `is_valid` checks a client's key against them."""

    def __init__(self, hashes: dict[str, tuple[bytes, bytes]], path: str | Path = ""):
        self._hashes, self._path = hashes, path  # salt and hash by the name of the key
        # Checking an unknown name must take as long as checking a known one.
        self._decoy = (secrets.token_bytes(16), secrets.token_bytes(32))

    @classmethod
    def read(cls, path: str | Path) -> ApiKeys:
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            how = 'give a file that "regard serve --new-key FILE" has made'
            raise SettingsError(f"{path}: cannot read the keys ({reason}); {how}") from None
        hashes = {}
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    entry = json.loads(line)
                    hashes[str(entry["name"])] = (bytes.fromhex(entry["salt"]), bytes.fromhex(entry["hash"]))
                except (ValueError, KeyError, TypeError):
                    raise SettingsError(
                        f"{path}:{number}: not an entry written by regard serve --new-key; remove the line"
                    ) from None
        if not hashes:
            raise SettingsError(f'{path}: contains no key; "regard serve --new-key {path}" adds one')
        return cls(hashes, path)

    def reload(self) -> None:
        """Read the file again; if this fails, the keys stay as they are."""
        try:
            self._hashes = ApiKeys.read(self._path)._hashes
        except SettingsError as error:
            logger.error("%s", error)

    def is_valid(self, key: str) -> bool:
        if not (found := _KEY.fullmatch(key)):
            return False
        salt, stored = self._hashes.get(found["name"], self._decoy)
        return hmac.compare_digest(_hash(found["secret"], salt), stored)


def add_key(path: str | Path) -> str:
    """Create an API key, append its salted hash to the key file (readable by its owner only), and return the key."""
    name, secret, salt = secrets.token_hex(4), secrets.token_urlsafe(32), secrets.token_bytes(16)
    entry = {"name": name, "salt": salt.hex(), "hash": _hash(secret, salt).hex()}
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
    except OSError as error:
        raise SettingsError(f"--new-key {path}: cannot write there ({error.strerror}); choose another file") from None
    return f"rg-{name}-{secret}"


def _hash(secret: str, salt: bytes) -> bytes:
    return hashlib.blake2b(secret.encode(), key=salt, digest_size=32).digest()
