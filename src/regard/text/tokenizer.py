"""Tokenizers: the base class of all kinds, training, saving and loading.

Each side of the data (source and target) has one tokenizer; with a joint vocabulary both sides use the same object. All
kinds have the same order of ids: EOS 0, UNK 1, SOS 2, the symbols, the other tokens, and PAD last, where Marian and
CTranslate2 expect it. Symbols are strings that are always one token, such as the mark at the end of a turn in chat;
most vocabularies have none. Vocabularies of words and of characters are at the end of this file, BPE and unigram in
`subword.py`.
"""

from __future__ import annotations

import codecs
import functools
import hashlib
import heapq
import json
import random
import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.errors import TokenizerError
from regard.files import write_atomically

if TYPE_CHECKING:
    from regard import config


EOS, UNK, SOS = 0, 1, 2
FIRST_SPECIALS = ("</s>", "<unk>", "<s>")
FIRST_TOKEN = len(FIRST_SPECIALS)  # first id after the special tokens
PAD_TOKEN = "<pad>"
SPACE_MARK = "▁"  # represents a space inside a token
UNKNOWN = "⁇"  # text of UNK

LONGEST_LINE = 8_000
"""Number of characters of a line that are used to learn a vocabulary; the rest of the line is ignored."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE_OR_CONTROL = re.compile(r"[\s\x00-\x1f\x7f-\x9f]")


def normalize(text: str, lowercase: bool = False) -> str:
    """Normalize a text before it is encoded; decoding gives back the normalized text.

    The text is lower-cased if `lowercase` is set, and composed (NFC). Every sequence of white space and control
    characters becomes one space; at the start and at the end of the text it is removed. "▁", which marks spaces inside
    tokens, becomes "_". Half a surrogate pair, which UTF-8 cannot encode, becomes U+FFFD. `normalize` is idempotent.
    """
    if lowercase:
        text = text.lower()
    if not text.isascii():
        text = unicodedata.normalize("NFC", text).replace(SPACE_MARK, "_")
    if not text.isprintable():  # most lines are printable and skip the slow part
        text = _SPACE_OR_CONTROL.sub(" ", _SURROGATE.sub("\ufffd", text))
    return " ".join(text.split())


def spell(token: str) -> bytes:
    """The text of a token in UTF-8, with spaces instead of "▁"."""
    return token.replace(SPACE_MARK, " ").encode()


def find_symbols(symbols: Sequence[str]) -> re.Pattern[str] | None:
    """A pattern whose `split` divides a text into `symbols` and the texts between them; None without symbols."""
    return re.compile(f"({'|'.join(map(re.escape, symbols))})") if symbols else None


class Piece(NamedTuple):
    """A token and its position: characters `start` to `end - 1` of the text, without the space before the token."""

    id: int
    text: str
    start: int
    end: int


class Tokenizer(ABC):
    """Base class of all tokenizers. `decode(encode(text)) == normalize(text)`, unless `encode` returns UNK."""

    model = b""
    """The content of the SentencePiece file, for kinds that use SentencePiece."""
    stores_tokens = True
    """Whether the JSON file lists the tokens; not needed if the SentencePiece file has them in the order of ids."""
    scores: Sequence[float] = ()
    """The scores of the SentencePiece model, which determine the segmentation."""

    def __init__(
        self,
        kind: str,
        lowercase: bool,
        tokens: Sequence[str],
        spellings: Sequence[bytes],
        unknown: str = f" {UNKNOWN}",
        symbols: Sequence[str] = (),
    ):
        """`tokens`: in the order of ids, `symbols` first, without EOS, UNK, SOS and PAD.

        `spellings`: the text of each token in UTF-8. `unknown`: the text of UNK. `symbols`: strings that are always one
        token. `kind`: e.g. "bpe" or "word".
        """
        self.kind, self.lowercase, self.symbols = kind, lowercase, tuple(symbols)
        self.tokens = (*FIRST_SPECIALS, *tokens, PAD_TOKEN)
        self.size, self.pad = len(self.tokens), len(self.tokens) - 1
        self._spellings = (b"", unknown.encode(), b"", *spellings, b"")

    def token(self, id: int) -> str:
        """A token as a string for display: a space is "▁", a byte "<0xE2>", a special token has angle brackets."""
        return self.tokens[id]

    def normalize(self, text: str) -> str:
        """The text that `decode(encode(text))` returns, if no token is UNK."""
        return normalize(text, self.lowercase)

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The token ids of a text, without EOS and SOS."""

    def encode_many(self, texts: list[str]) -> list[list[int]]:
        """The token ids of many texts. For SentencePiece, this is faster than calling `encode` for each text."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, always one line. EOS, SOS and PAD are skipped; UNK becomes "⁇"."""
        text = b"".join([self._spellings[id] for id in ids]).decode("utf-8", errors="replace")
        text = text.removeprefix(" ")
        return text if text.isprintable() else _SPACE_OR_CONTROL.sub(" ", text)  # a model may generate any byte

    def pieces(self, text: str) -> list[Piece]:
        """The tokens of a text with their positions in `normalize(text)`."""
        return self.pieces_of(self.encode(text))

    def pieces_of(self, ids: Sequence[int]) -> list[Piece]:
        """The tokens of `ids` with their positions in `decode(ids)`. EOS, SOS and PAD have `start == end`.

        If a character is encoded as several byte tokens, all of these tokens have the position of the whole character.
        """
        leading = next((spelling for id in ids if (spelling := self._spellings[id])), b"").startswith(b" ")
        position = -1 if leading else 0  # `decode` removes the first space
        places: list[tuple[int, int]] = []
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        waiting = 0  # number of bytes at the end whose character is not complete
        for place, id in enumerate(ids):
            spelled = decoder.decode(self._spellings[id], final=place + 1 == len(ids))
            start = position + spelled.startswith(" ")
            position += len(spelled)
            places.append((max(start, 0), max(position, 0)))
            if decoder.getstate()[0]:
                waiting += 1
            elif waiting:
                places[-waiting - 1 :] = [(places[-waiting - 1][0], places[-1][1])] * (waiting + 1)
                waiting = 0
        return [Piece(int(id), self.tokens[id], *place) for id, place in zip(ids, places, strict=True)]

    def hash(self) -> str:
        """A hash of everything that determines how text is encoded. A saved and loaded copy has the same hash."""
        content = json.dumps([self.kind, self.lowercase, self.tokens, list(self.scores)])
        return hashlib.sha256(content.encode()).hexdigest()

    def files(self, name: str) -> dict[str, bytes]:
        """The content of each file to store, by file name: `<name>.json`, and `<name>.model` for SentencePiece."""
        header: dict[str, Any] = {"kind": self.kind, "size": self.size, "lowercase": self.lowercase}
        if self.stores_tokens:
            header["tokens"] = list(self.tokens[FIRST_TOKEN:-1])
        if self.symbols:
            header["symbols"] = list(self.symbols)
        content = json.dumps(header, ensure_ascii=False, indent=1) + "\n"
        model = {f"{name}.model": self.model} if self.model else {}
        return model | {f"{name}.json": content.encode()}

    def save(self, folder: Path, name: str) -> None:
        """Write the files of the tokenizer, each atomically; `name`: their name without the ending."""
        for file, content in self.files(name).items():
            write_atomically(folder / file, content)


def train_tokenizer(lines: Iterable[str], settings: config.TokenizerSettings, seed: int) -> Tokenizer:
    """Learn a vocabulary from lines of text. From a large corpus, only a random sample of the lines is used."""
    sample = [text for line in sample_lines(lines, seed) if (text := normalize(line, settings.lowercase))]
    if not sample:
        raise TokenizerError("tokenizer: there is no text to learn a vocabulary from; check the training files")
    if settings.kind in ("bpe", "unigram"):
        from regard.text import subword

        return subword.train(sample, settings)
    symbols = settings.special_tokens
    counts = Counter(token for line in sample for token in split_tokens(settings.kind, line, symbols))
    ranked = sorted(counts.keys() - set(symbols), key=lambda token: (-counts[token], token))
    tokens = [*symbols, *ranked][: settings.vocab_size - FIRST_TOKEN - 1]  # PAD
    return VocabularyTokenizer(settings.kind, settings.lowercase, tokens, symbols)


def sample_lines(
    lines: Iterable[str], seed: int, most_lines: int = 1_000_000, most_characters: int = 200_000_000
) -> list[str]:
    """A uniform random sample of lines, in order, within both limits. Lines are cut after `LONGEST_LINE` characters."""
    draw = random.Random(seed).random
    held: list[tuple[float, int, str]] = []
    characters, threshold = 0, 1.0  # lines with a random key below the threshold are kept; it falls until they fit
    for number, line in enumerate(lines):
        key = draw()
        if key >= threshold:
            continue
        line = line[:LONGEST_LINE]
        heapq.heappush(held, (-key, number, line))
        characters += len(line)
        while len(held) > most_lines or characters > most_characters:
            negative_key, _, dropped = heapq.heappop(held)
            threshold = -negative_key
            characters -= len(dropped)
    held.sort(key=lambda entry: entry[1])
    return [line for _, _, line in held]


def load_tokenizer(folder: Path, name: str) -> Tokenizer:
    """Load a tokenizer from `<name>.json` and, if SentencePiece is used, `<name>.model` in a folder."""
    path = folder / f"{name}.json"
    try:
        header = json.loads(path.read_text(encoding="utf-8"))
        kind, size, lowercase = str(header["kind"]), int(header["size"]), bool(header["lowercase"])
        tokens, symbols = ([str(token) for token in header.get(part, [])] for part in ("tokens", "symbols"))
        tokenizer: Tokenizer
        if kind in ("bpe", "unigram", "sentencepiece"):
            from regard.text import subword

            tokenizer = subword.load(folder / f"{name}.model", kind, lowercase, tokens, symbols)
        elif kind in ("word", "character"):
            tokenizer = VocabularyTokenizer(kind, lowercase, tokens, symbols)
        else:
            raise TokenizerError(f'{path}: unknown kind of tokenizer "{kind}"; a newer version of Regard may know it')
    except OSError as error:
        raise TokenizerError(
            f"{error.filename}: cannot read the tokenizer ({error.strerror}); use a copy of the run"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise TokenizerError(f"{path}: not a valid tokenizer file; take it from a copy of the run") from None
    if tokenizer.size != size:
        raise TokenizerError(
            f"{path}: the size is {size}, but there are {tokenizer.size} tokens; "
            "take both files from one copy of the run"
        )
    return tokenizer


# ---------------------------------------------------------------------------------------------------------------------
# Words and characters


class VocabularyTokenizer(Tokenizer):
    """Tokenizes into whole words or single characters. Unknown words or characters become UNK."""

    def __init__(self, kind: str, lowercase: bool, tokens: Sequence[str], symbols: Sequence[str] = ()):
        """`kind`: "word" or "character". `tokens`: in the order of ids, `symbols` first, without EOS, UNK, SOS and PAD.

        `symbols`: strings that are always one token.
        """
        # An unknown word most likely had a space before it, an unknown character most likely not.
        unknown = f" {UNKNOWN}" if kind == "word" else UNKNOWN
        super().__init__(kind, lowercase, tokens, [spell(token) for token in tokens], unknown, symbols)
        self._ids = {token: id for id, token in enumerate(tokens, start=FIRST_TOKEN)}

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(token, UNK) for token in split_tokens(self.kind, self.normalize(text), self.symbols)]

    def pieces(self, text: str) -> list[Piece]:
        """The tokens of a text with their positions in `normalize(text)`. Unknown words have positions too."""
        pieces, position = [], -1 if self.kind == "word" else 0  # the "▁" of the first word represents no space
        for token in split_tokens(self.kind, self.normalize(text), self.symbols):
            id = self._ids.get(token, UNK)
            start = position + token.startswith(SPACE_MARK)
            position += len(token)
            pieces.append(Piece(id, self.tokens[id], start, position))
        return pieces


def words_of(tokenizer: Tokenizer) -> dict[str, int]:
    """The words of a vocabulary of words, without "▁", each with its id: the most frequent words first.

    If a word is there with and without a space before it, e.g. a punctuation mark, its id is that of the more frequent.
    """
    words: dict[str, int] = {}
    for id, token in enumerate(tokenizer.tokens[FIRST_TOKEN:-1], start=FIRST_TOKEN):
        if word := token.removeprefix(SPACE_MARK):
            words.setdefault(word, id)
    return words


def split_tokens(kind: str, text: str, symbols: Sequence[str] = ()) -> Iterator[str]:
    """Split a normalized text into words (kind "word") or characters (kind "character").

    Each of `symbols` is always one token. A space becomes "▁". With kind "word", this is the first character of the
    word after the space, and the first word of the text also starts with "▁".
    """
    if not text:
        return
    marked = text.replace(" ", SPACE_MARK) if kind == "character" else SPACE_MARK + text.replace(" ", SPACE_MARK)
    between = find_symbols(symbols)
    for part in [marked] if between is None else filter(None, between.split(marked)):
        if part in symbols:
            yield part
        elif kind == "character":
            yield from part
        else:
            first, *others = part.split(SPACE_MARK)
            if first:  # directly after a symbol, without a space
                token, *rest = _split_word(first)
                yield from (token.removeprefix(SPACE_MARK), *rest)
            for word in others:
                yield from _split_word(word) if word else [SPACE_MARK]


@functools.lru_cache(maxsize=1 << 16)
def _split_word(word: str) -> tuple[str, ...]:
    """The tokens of a word: each punctuation mark before or after it, and the rest. The first token gets a "▁"."""
    start, end = 0, len(word)
    while start < end and _is_punctuation(word[start]):
        start += 1
    while end > start and _is_punctuation(word[end - 1]):
        end -= 1
    first, *rest = [*word[:start], *filter(None, [word[start:end]]), *word[end:]]
    return (SPACE_MARK + first, *rest)


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"
