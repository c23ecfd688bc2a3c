"""The exceptions of Regard. Every message is one line: what is wrong, where, and what to do about it."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path

WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
"""Numbers of write errors that may come without a file name, e.g. because the disk is full."""


class RegardError(Exception):
    """An error that the user can correct. The command line prints it as one line and exits with code 2."""


class SettingsError(RegardError):
    """A recipe, an option or a value that is not valid."""


class CorpusError(RegardError):
    """A corpus or document that cannot be read, or is not in the expected format."""

    def __init__(self, path: str | Path, problem: str, *, line: int | None = None):
        super().__init__(f"{path}: {problem}" if line is None else f"{path}:{line}: {problem}")


class TokenizerError(RegardError):
    """A vocabulary that cannot be built or read."""


class VocabularySizeError(TokenizerError):
    """The text does not support a vocabulary of this size. `possible`: the nearest size that the text supports."""

    def __init__(self, message: str, possible: int):
        super().__init__(message)
        self.possible = possible


class VocabularyTooSmallError(VocabularySizeError):
    """The requested vocabulary is too small to have a token for every byte and every common character of the text."""


class ModelError(RegardError):
    """An input that an architecture cannot process."""


class RunError(RegardError):
    """A run folder that is missing, incomplete, damaged or in use."""


class UnwritableError(RunError):
    """A file or folder that cannot be written."""


class TrainingError(RegardError):
    """Training that cannot start or cannot continue."""


class Terminated(KeyboardInterrupt):
    """Raised on SIGTERM and SIGHUP. It is handled like Ctrl-C, but the process ends with another exit code."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The text '; did you mean "x"?', where x is the name in `known` closest to `name`; "" if no name is close."""
    import difflib  # here, because help does not need it

    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f'; did you mean "{matches[0]}"?' if matches else ""
