"""Subwords by SentencePiece: BPE (Sennrich et al. 2016) and unigram (Kudo 2018), trained here or published by others.

A model that is trained here gets normalized text and encodes characters outside its alphabet as UTF-8 bytes, so that
any text can be encoded without UNK. A published model, such as Marian's, has a table with the id of each piece.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import sentencepiece

from regard import config
from regard.errors import TokenizerError, VocabularySizeError, VocabularyTooSmallError
from regard.text.tokenizer import EOS, FIRST_TOKEN, LONGEST_LINE, SOS, SPACE_MARK, UNK, Tokenizer, spell

BYTE_COUNT = 256
"""Number of tokens that are single bytes. Order of ids: special tokens, symbols, bytes, alphabet, subwords, PAD."""


class SubwordTokenizer(Tokenizer):
    """Tokenizes with a SentencePiece model (BPE or unigram) made by `train`. The last id, PAD, is not in that model."""

    stores_tokens = False

    def __init__(self, kind: str, lowercase: bool, model: bytes):
        """`kind`: "bpe" or "unigram". `model`: the content of a SentencePiece file made by `train`."""
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        ids = list(range(FIRST_TOKEN, self._processor.get_piece_size()))
        tokens: list[str] = self._processor.id_to_piece(ids)
        # For each token from FIRST_TOKEN on: minus the rank of the merge in BPE, the log-probability in unigram.
        self.scores = self._processor.get_score(ids)
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


def train(lines: list[str], settings: config.TokenizerSettings) -> SubwordTokenizer:
    """Learn subwords from normalized lines. A vocabulary size that is too large or too small for them is an error."""
    tokenizer = _learn(lines, settings, settings.vocab_size)
    if tokenizer.size == settings.vocab_size:
        return tokenizer
    largest = tokenizer.size
    while (smaller := _learn(lines, settings, largest).size) < largest:  # a smaller alphabet may give fewer tokens
        largest = smaller
    problem = f"tokenizer.vocab_size {settings.vocab_size} is more than the data supports; set it to {largest} or less"
    raise VocabularySizeError(problem, largest)


def _learn(lines: list[str], settings: config.TokenizerSettings, size: int) -> SubwordTokenizer:
    """Learn a vocabulary of `size` tokens with PAD, or fewer if the text has fewer; an error if `size` is too small."""
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=settings.kind,
            vocab_size=size - 1,  # SentencePiece does not store PAD
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
            user_defined_symbols=list(settings.special_tokens),
            num_threads=8,  # fixed: the unigram vocabulary depends on the number of threads
            minloglevel=2,  # errors only
        )
    except RuntimeError as error:
        if not (numbers := re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))):
            raise TokenizerError(
                f"tokenizer: SentencePiece cannot learn from this text ({error}); check the training files"
            ) from None
        smallest = int(numbers[1]) + 1  # PAD
        problem = f"tokenizer.vocab_size {size} is too small for all bytes and letters; set it to {smallest} or more"
        raise VocabularyTooSmallError(problem, smallest) from None
    return SubwordTokenizer(settings.kind, settings.lowercase, model.getvalue())


def _alphabet_share(lines: list[str], size: int) -> float:
    """The `character_coverage` for SentencePiece: the share of the text whose characters get their own tokens.

    `size`: number of tokens of the vocabulary. If tokens for all characters take at most half of it, the share is 1:
    the usual 0.9995 would encode Ä, Ö, Ü and every digit of Multi30k as bytes. Otherwise (e.g. in Chinese), half of the
    vocabulary is for the most frequent characters, so that there is room for subwords; other characters are encoded as
    bytes.
    """
    counts = Counter[str]()
    for line in lines:
        counts.update(line)
    room = size - FIRST_TOKEN - 1 - BYTE_COUNT  # 1: PAD
    kept = sum(count for _, count in counts.most_common(max(0, room // 2)))
    return max(kept / counts.total(), 0.98)  # SentencePiece accepts no smaller coverage


# ---------------------------------------------------------------------------------------------------------------------
# Published models with their own table of ids

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_LANGUAGE = re.compile(r"\s*(>>[^<>\s]+<<)\s*")


class MappedTokenizer(Tokenizer):
    """Tokenizes with a published SentencePiece model and a table with the id of each piece.

    A Marian model has two SentencePiece models, one per language, and one table for both. A piece that is not in the
    table becomes UNK. The SentencePiece model has its own rules to normalize text, and `decode` returns normalized
    text. A language token such as ">>de<<" at the start of a text is one token if the table has it.
    """

    def __init__(self, tokens: Sequence[str], model: bytes):
        """`tokens`: in the order of ids, without EOS, UNK, SOS and PAD. `model`: content of a SentencePiece file."""
        found = ((token, _BYTE.fullmatch(token)) for token in tokens)
        spellings = [bytes.fromhex(byte[1]) if byte else spell(token) for token, byte in found]
        super().__init__("sentencepiece", False, tokens, spellings)
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.scores = self._processor.get_score(list(range(self._processor.get_piece_size())))
        self._ids = {token: id for id, token in enumerate(tokens, start=FIRST_TOKEN)}

    def normalize(self, text: str) -> str:
        """The text that `decode(encode(text))` returns, if no token is UNK."""
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


def load(
    path: Path, kind: str, lowercase: bool = False, tokens: Sequence[str] = (), symbols: Sequence[str] = ()
) -> Tokenizer:
    """Open a SentencePiece file as a tokenizer of the kind "bpe", "unigram" or "sentencepiece".

    `tokens`: only for kind "sentencepiece" (a published model), its tokens in the order of ids. `symbols`: for other
    kinds, the strings that must always be one token in this model; other symbols in the model are an error.
    """
    model = path.read_bytes()
    try:
        if not model:  # SentencePiece would accept it as an empty model
            raise RuntimeError
        if kind == "sentencepiece":
            return MappedTokenizer(tokens, model)
        tokenizer = SubwordTokenizer(kind, lowercase, model)
    except RuntimeError:
        raise TokenizerError(f"{path}: not a SentencePiece model, or damaged; take it from a copy of the run") from None
    if tokenizer.token(tokenizer.first_byte) != "<0x00>" or tokenizer.symbols != tuple(symbols):
        raise TokenizerError(
            f"{path}: this SentencePiece model is not that of the run (its ids differ); take it from a copy of the run"
        )
    return tokenizer
