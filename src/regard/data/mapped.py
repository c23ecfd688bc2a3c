"""Subwords whose ids come from a table, not from the SentencePiece model that cuts them: how published models come.

Marian's models share one table between two SentencePiece models, one a language; a piece that the table lacks is
unknown. SentencePiece normalises with the rules it was trained with, so `decode` gives back what those rules leave.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import sentencepiece

from regard.data.tokenizer import FIRST_SPECIALS, SPACE_MARK, UNK, Tokenizer, spell
from regard.errors import TokenizerError

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_LANGUAGE = re.compile(r"\s*(>>[^<>\s]+<<)\s*")


class MappedTokenizer(Tokenizer):
    """A SentencePiece model and a table of tokens. ">>de<<" at the start of a text is a token, if the table has it."""

    def __init__(self, tokens: Sequence[str], model: bytes):
        """`tokens` in the order of their ids, the special ones left out; `model` is a SentencePiece file's content."""
        super().__init__("sentencepiece", False, tokens, [_spelling(token) for token in tokens])
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._ids = {token: id for id, token in enumerate(tokens, start=len(FIRST_SPECIALS))}

    def normalize(self, text: str) -> str:
        """The text as `decode` will give it back."""
        language, rest = self._split_language(text)
        plain = self._processor.normalize(super().normalize(rest)).replace(SPACE_MARK, " ").strip(" ")
        return f"{language} {plain}".strip(" ") if language else plain

    def encode(self, text: str) -> list[int]:
        language, rest = self._split_language(text)
        pieces: list[str] = self._processor.encode(super().normalize(rest), out_type=str)
        ids = [self._ids.get(piece, UNK) for piece in pieces]
        return [self._ids[language], *ids] if language else ids

    def _split_language(self, text: str) -> tuple[str, str]:
        if (found := _LANGUAGE.match(text)) and found[1] in self._ids:
            return found[1], text[found.end() :]
        return "", text

    def _scores(self) -> list[float]:
        return self._processor.get_score(list(range(self._processor.get_piece_size())))

    def _header(self) -> dict[str, list[str]]:
        return {"tokens": list(self.tokens[len(FIRST_SPECIALS) : -1])}


def load(path: Path, tokens: Sequence[str]) -> MappedTokenizer:
    """Open a stored model with its table."""
    model = path.read_bytes()
    try:
        return MappedTokenizer(tokens, model)
    except RuntimeError:
        raise TokenizerError(f"{path}: not a SentencePiece model, or damaged; take it from its origin again") from None


def _spelling(token: str) -> bytes:
    byte = _BYTE.fullmatch(token)
    return bytes.fromhex(byte[1]) if byte else spell(token)
