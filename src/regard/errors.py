"""The exceptions of Regard. Every message is one line: what is wrong, where, and what to do about it."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path

WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
"""Numbers (errno) of failures to write, e.g. on a full disk. Such errors may not name the file."""


class RegardError(Exception):
    """An error that the user can correct. The command line prints it as one line and exits with code 2."""

    code: str | None = None
    """The name of the error in answers of the server, for programs that react to it."""


class SettingsError(RegardError):
    """Raised for a recipe, an option or a value that is not valid."""


class CorpusError(RegardError):
    """Raised for a corpus or document that cannot be read or is not in the expected format. `line`: the line number."""

    def __init__(self, path: str | Path, problem: str, *, line: int | None = None):
        super().__init__(f"{path}: {problem}" if line is None else f"{path}:{line}: {problem}")


class TokenizerError(RegardError):
    """Raised for a vocabulary that cannot be built or read."""


class VocabularySizeError(TokenizerError):
    """Raised if the text does not give a vocabulary of the requested size. `possible`: the nearest possible size."""

    def __init__(self, message: str, possible: int):
        super().__init__(message)
        self.possible = possible


class VocabularyTooSmallError(VocabularySizeError):
    """Raised if the vocabulary is too small to contain every byte and every common character of the text."""


class ModelError(RegardError):
    """Raised for an input or an analysis that the model does not support."""


class NoCrossAttentionError(ModelError):
    """Raised for a request that needs cross-attention, such as word alignment, to a model without it."""

    code = "no_cross_attention"


class EmptyTranslationError(ModelError):
    """Raised if a translation by the model is to be inspected, but is empty."""

    code = "empty_translation"


class RunError(RegardError):
    """Raised for a run folder that is missing, incomplete, damaged or in use."""


class UnwritableError(RunError):
    """Raised for a file or folder that cannot be written."""


class TrainingError(RegardError):
    """Raised if training cannot start or cannot continue."""


class Terminated(KeyboardInterrupt):
    """Raised on SIGTERM and SIGHUP. It is handled like Ctrl-C, but the exit code is 143 instead of 130."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The text '; did you mean "x"?', where x is the name in `known` closest to `name`; "" if no name is close."""
    import difflib  # here, because help does not need it

    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f'; did you mean "{matches[0]}"?' if matches else ""
