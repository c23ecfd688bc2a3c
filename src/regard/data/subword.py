"""Subwords learned by SentencePiece: BPE (Sennrich et al. 2016) and unigram (Kudo 2018), any text representable.

Normalisation is done before SentencePiece sees the text, and characters outside its alphabet are spelled in UTF-8
bytes, so that nothing is lost and UNK is never needed.
"""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import sentencepiece

from regard import config
from regard.data.tokenizer import EOS, FIRST_SPECIALS, LONGEST_LINE, SOS, SPECIAL_COUNT, UNK, Tokenizer
from regard.errors import TokenizerError

BYTE_COUNT = 256
THREADS = 8
"""Fixed, because the unigram vocabulary depends on it (not on the cores that run them); BPE's does not."""
QUIET = 2
"""SentencePiece's level of errors: nothing below it is printed."""


class SubwordTokenizer(Tokenizer):
    """A SentencePiece model, with PAD appended to its ids."""

    def __init__(self, kind: str, model: bytes, lowercase: bool):
        """`model` is the content of a SentencePiece file that `train` made."""
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        ids = list(range(len(FIRST_SPECIALS), self._processor.get_piece_size()))
        scores = self._processor.get_score(ids)
        super().__init__(kind, self._processor.id_to_piece(ids), lowercase, scores)

    def encode(self, text: str) -> list[int]:
        return self._processor.encode(self.normalize(text))  # type: ignore[no-any-return]

    def encode_many(self, texts: list[str]) -> list[list[int]]:
        return self._processor.encode([self.normalize(text) for text in texts])  # type: ignore[no-any-return]

    def is_byte(self, id: int) -> bool:
        """Whether a token stands for one byte of a character outside the alphabet."""
        return id != self.pad and bool(self._processor.is_byte(id))

    def _spell(self, token: str) -> bytes:
        id = self._processor.piece_to_id(token)
        return bytes([int(token[1:-1], 16)]) if self._processor.is_byte(id) else super()._spell(token)

    def _save_tokens(self, folder: Path, name: str) -> dict[str, list[str]]:
        (folder / f"{name}.model").write_bytes(self._model)
        return {}


def train(lines: list[str], settings: config.Tokenizer) -> SubwordTokenizer:
    """Learn subwords from normalised lines."""
    smallest = SPECIAL_COUNT + BYTE_COUNT + 2
    if settings.size < smallest:
        raise TokenizerError(f"tokenizer.size {settings.size} is too small for subwords; set it to {smallest} or more")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=settings.kind,
            vocab_size=settings.size - 1,  # PAD is ours
            hard_vocab_limit=False,  # what is too large is said below, with the size that would do
            character_coverage=_alphabet_share(lines, settings.size),
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            max_sentence_length=4 * LONGEST_LINE,  # in bytes
            eos_id=EOS,
            unk_id=UNK,
            bos_id=SOS,
            pad_id=-1,
            num_threads=THREADS,
            minloglevel=QUIET,
        )
    except RuntimeError as error:
        raise TokenizerError(f"tokenizer: SentencePiece cannot learn from this text ({error})") from None
    tokenizer = SubwordTokenizer(settings.kind, model.getvalue(), settings.lowercase)
    if tokenizer.size < settings.size:
        raise TokenizerError(
            f"tokenizer.size {settings.size} is more than the data supports; set it to {tokenizer.size} or less"
        )
    return tokenizer


def load(path: Path, kind: str, lowercase: bool) -> SubwordTokenizer:
    """Open a stored model."""
    try:
        model = path.read_bytes()
        return SubwordTokenizer(kind, model, lowercase)
    except OSError as error:
        raise TokenizerError(f"{path}: cannot read the tokenizer ({error.strerror})") from None
    except RuntimeError:
        raise TokenizerError(f"{path}: not a SentencePiece model, or damaged; take it from the run again") from None


def _alphabet_share(lines: list[str], size: int) -> float:
    """Which share of the characters in the text get a token: all, while those leave half of the room to subwords.

    The usual 0.9995 would spell Ä, Ö, Ü and every digit of Multi30k in bytes; all of Chinese would leave no room.
    """
    counts = Counter[str]()
    for line in lines:
        counts.update(line)
    room = size - SPECIAL_COUNT - BYTE_COUNT
    kept = sum(count for _, count in counts.most_common(room // 2))
    return kept / counts.total()
