"""Subwords learned by SentencePiece: BPE (Sennrich et al. 2016) and unigram (Kudo 2018), any text representable.

Normalisation is done before SentencePiece sees the text, and characters outside its alphabet are spelled in UTF-8
bytes, so that nothing is lost and UNK is never needed.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import sentencepiece

from regard import config
from regard.data.tokenizer import EOS, FIRST_SPECIALS, LONGEST_LINE, SOS, SPECIAL_COUNT, UNK, Tokenizer, spell
from regard.errors import TokenizerError, VocabularyTooLargeError, VocabularyTooSmallError

BYTE_COUNT = 256
FIRST_TOKEN = len(FIRST_SPECIALS)
"""From here on: symbols if there are any, then the tokens of the 256 bytes, of the alphabet, and the subwords."""
THREADS = 8
"""Fixed, because the unigram vocabulary depends on it (not on the cores that run them); BPE's does not."""
LEAST_SHARE = 0.98
"""SentencePiece takes no smaller alphabet."""
QUIET = 2
"""SentencePiece's level of errors: nothing below it is printed."""


class SubwordTokenizer(Tokenizer):
    """A SentencePiece model, with PAD appended to its ids."""

    def __init__(self, kind: str, lowercase: bool, model: bytes):
        """`model` is the content of a SentencePiece file that `train` made."""
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        ids = list(range(FIRST_TOKEN, self._processor.get_piece_size()))
        tokens: list[str] = self._processor.id_to_piece(ids)
        # Of each token from FIRST_TOKEN on: the order of merges in BPE, log-probabilities in unigram.
        self.scores: list[float] = self._processor.get_score(ids)
        self.first_byte = next((id for id in ids if self._processor.is_byte(id)), FIRST_TOKEN)
        symbols = tokens[: self.first_byte - FIRST_TOKEN]
        single_bytes = [bytes([byte]) for byte in range(BYTE_COUNT)]
        rest = tokens[len(symbols) + BYTE_COUNT :]
        spellings = [*(symbol.encode() for symbol in symbols), *single_bytes, *map(spell, rest)]
        super().__init__(kind, lowercase, tokens, spellings, symbols=symbols)

    def encode(self, text: str) -> list[int]:
        return self._processor.encode(self.normalize(text))

    def encode_many(self, texts: list[str]) -> list[list[int]]:
        return self._processor.encode([self.normalize(text) for text in texts])

    def _scores(self) -> list[float]:
        return self.scores

    def _header(self) -> dict[str, list[str]]:
        return {"symbols": list(self.symbols)} if self.symbols else {}


def train(lines: list[str], settings: config.Tokenizer) -> SubwordTokenizer:
    """Learn subwords from normalised lines."""
    tokenizer = _learn(lines, settings, settings.size)
    if tokenizer.size == settings.size:
        return tokenizer
    largest = tokenizer.size
    while (smaller := _learn(lines, settings, largest).size) < largest:  # with fewer letters it may come out smaller
        largest = smaller
    raise VocabularyTooLargeError(settings.size, largest)


def _learn(lines: list[str], settings: config.Tokenizer, size: int) -> SubwordTokenizer:
    """A vocabulary of this size, or of the largest that the text supports."""
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=settings.kind,
            vocab_size=size - 1,  # PAD is ours
            hard_vocab_limit=False,
            character_coverage=_alphabet_share(lines, size),
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            max_sentence_length=4 * LONGEST_LINE,  # in bytes
            eos_id=EOS,
            unk_id=UNK,
            bos_id=SOS,
            pad_id=-1,
            user_defined_symbols=list(settings.symbols),
            num_threads=THREADS,
            minloglevel=QUIET,
        )
    except RuntimeError as error:
        raise _explain(str(error), size) from None
    return SubwordTokenizer(settings.kind, settings.lowercase, model.getvalue())


def _explain(error: str, size: int) -> TokenizerError:
    if numbers := re.search(r"smaller than required_chars\. \d+ vs (\d+)", error):
        return VocabularyTooSmallError(size, int(numbers[1]) + 1)  # PAD
    return TokenizerError(f"tokenizer: SentencePiece cannot learn from this text ({error})")


def load(path: Path, kind: str, lowercase: bool, symbols: Sequence[str] = ()) -> SubwordTokenizer:
    """Open a stored model."""
    model = path.read_bytes()
    damaged = TokenizerError(f"{path}: not a SentencePiece model, or damaged; take it from a copy of the run")
    if not model:  # which SentencePiece would take for a model of nothing
        raise damaged
    try:
        tokenizer = SubwordTokenizer(kind, lowercase, model)
    except RuntimeError:
        raise damaged from None
    if tokenizer.token(tokenizer.first_byte) != "<0x00>" or tokenizer.symbols != tuple(symbols):
        raise TokenizerError(
            f"{path}: a SentencePiece model whose ids are laid out differently; it cannot be used here"
        )
    return tokenizer


def _alphabet_share(lines: list[str], size: int) -> float:
    """The share of the text whose characters get a token each: all of it, while that leaves half the room to subwords.

    The usual 0.9995 would spell Ä, Ö, Ü and every digit of Multi30k in bytes. All of Chinese, though, would leave no
    room; then its rare characters are spelled in bytes.
    """
    counts = Counter[str]()
    for line in lines:
        counts.update(line)
    room = size - SPECIAL_COUNT - BYTE_COUNT
    kept = sum(count for _, count in counts.most_common(max(0, room // 2)))
    return max(kept / counts.total(), LEAST_SHARE)
