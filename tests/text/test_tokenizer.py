"""Round trips over all of Unicode, exact places of tokens, and vocabularies that follow from text and seed alone."""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import config
from regard.errors import TokenizerError
from regard.text.tokenizer import (
    EOS,
    SOS,
    UNK,
    Tokenizer,
    load_tokenizer,
    normalize,
    sample_lines,
    split_tokens,
    train_tokenizer,
)

LINES = [
    f"{subject} {verb}, {thing}."
    for subject, verb, thing in product(
        ("The cat", "Die Größe", "l'amico", "Перевод"),
        ("sees", "is not seeing", "va à la plage", "wählt 10 %"),
        ("a well-known house", "«naïve» people", "東京", "<s> or </s>", "nothing (yet)"),
    )
]
KINDS = ("bpe", "unigram", "word", "character")
SUBWORDS = ("bpe", "unigram")
SIZE = {"bpe": 400, "unigram": 310, "word": 40, "character": 54}
TRAINED = {
    kind: train_tokenizer(LINES, config.TokenizerSettings(kind=kind, vocab_size=SIZE[kind]), seed=1) for kind in KINDS
}

# Any string of Unicode scalar values, and more often than chance would: spaces, marks, and what tokens look like.
texts = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.sampled_from(
            [" ", "\n", "\u3000", "▁", "▅", "<s>", "</s>", "<0x41>", "<unk>", "é", "e\u0301", "The cat", "\ufffd", "⁇"]
        ),
    )
).map("".join)
kinds = st.sampled_from(KINDS)


@given(texts, st.booleans())
def test_normalize_is_stable_and_clean(text: str, lowercase: bool) -> None:
    normal = normalize(text, lowercase)
    assert normalize(normal, lowercase) == normal
    assert unicodedata.is_normalized("NFC", normal)
    assert normal == normal.strip()
    assert "  " not in normal
    assert "▁" not in normal
    assert not any(unicodedata.category(c) in ("Cc", "Zl", "Zp", "Cs") or (c.isspace() and c != " ") for c in normal)
    assert not lowercase or normal == normal.lower()


def test_normalize_every_character() -> None:
    for code in (*range(0xD800), *range(0xE000, 0x33480), *range(0xE0000, 0xE0200)):  # the rest is not assigned
        normal = normalize(f"a{chr(code)}b", lowercase=True)
        assert normalize(normal, lowercase=True) == normal, hex(code)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" a\t\u00a0\u2003b\r\n", "a b"),
        ("a\x00b\x7fc\x85d", "a b c d"),
        ("e\u0301", "\u00e9"),
        ("a▁b", "a_b"),
        ("a\ud800b", "a\ufffdb"),
        ("می\u200cخواهم", "می\u200cخواهم"),  # the joiner of Persian has a meaning and stays
        ("ﬁ ²", "ﬁ ²"),  # compatibility forms stay too: NFC, not NFKC
        ("", ""),
        (" \n ", ""),
    ],
)
def test_normalize_examples(text: str, expected: str) -> None:
    assert normalize(text) == expected


@given(st.sampled_from(SUBWORDS), texts)
def test_subwords_round_trip_any_text(kind: str, text: str) -> None:
    tokenizer = TRAINED[kind]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == normalize(text)
    assert not {EOS, UNK, SOS, tokenizer.pad} & set(ids)
    assert tokenizer.encode_many([text, "The cat", text]) == [ids, tokenizer.encode("The cat"), ids]


@pytest.mark.parametrize("kind", SUBWORDS)
def test_subwords_round_trip_every_character(kind: str) -> None:
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    blocks = ["x".join(characters[start : start + 64]) for start in range(0, len(characters), 64)]
    tokenizer = TRAINED[kind]
    assert [tokenizer.decode(ids) for ids in tokenizer.encode_many(blocks)] == [normalize(block) for block in blocks]


@given(st.sampled_from(["word", "character"]), st.lists(st.sampled_from(LINES)).map("\t".join))
def test_known_words_round_trip(kind: str, text: str) -> None:
    tokenizer = TRAINED[kind]
    ids = tokenizer.encode(text)
    assert UNK not in ids
    assert tokenizer.decode(ids) == normalize(text)


@given(st.sampled_from(["word", "character"]), texts)
def test_splitting_loses_nothing(kind: str, text: str) -> None:
    tokens = list(split_tokens(kind, normalize(text)))
    assert "".join(tokens).replace("▁", " ").removeprefix(" ") == normalize(text)
    assert all(tokens)
    assert len(TRAINED[kind].encode(text)) == len(tokens)


def test_words_without_their_punctuation() -> None:
    assert list(split_tokens("word", '"Well-known," he said: don\'t... -- ok')) == [
        *('▁"', "Well-known", ",", '"', "▁he", "▁said", ":", "▁don't", ".", ".", ".", "▁-", "-", "▁ok")
    ]


def test_unknown_words_and_characters() -> None:
    word, character = TRAINED["word"], TRAINED["character"]
    assert word.encode("The zebra sees") == [word.encode("The")[0], UNK, word.encode("sees")[0]]
    assert word.decode(word.encode("The zebra sees")) == "The ⁇ sees"
    assert character.decode(character.encode("The ωcat")) == "The ⁇cat"
    assert [(piece.id, piece.start, piece.end) for piece in word.pieces("The zebra sees")][1] == (UNK, 4, 9)


@given(kinds, texts)
def test_pieces_say_where_tokens_stand(kind: str, text: str) -> None:
    tokenizer, normal = TRAINED[kind], normalize(text)
    pieces = tokenizer.pieces(text)
    assert [piece.id for piece in pieces] == tokenizer.encode(text)
    assert [piece.text for piece in pieces] == [tokenizer.token(piece.id) for piece in pieces]
    covered = [0] * len(normal)
    for piece in pieces:
        for place in {*range(piece.start, piece.end)}:
            covered[place] += 1
        is_byte = kind in SUBWORDS and piece.text.startswith("<0x")
        if is_byte:
            assert piece.end == piece.start + 1
        elif piece.id != UNK:
            assert normal[piece.start : piece.end] == piece.text.removeprefix("▁")
    bytes_of = [len(c.encode()) for c in normal]
    for c, times, size in zip(normal, covered, bytes_of, strict=True):
        assert times == 0 if c == " " else times in (1, size)
    assert [piece.start for piece in pieces] == sorted(piece.start for piece in pieces)


@given(kinds, st.data())
def test_any_ids_decode_to_one_line_with_places(kind: str, data: st.DataObject) -> None:
    tokenizer = TRAINED[kind]
    ids = data.draw(st.lists(st.integers(0, tokenizer.size - 1)))
    text = tokenizer.decode(ids)
    assert len(text.splitlines()) <= 1
    pieces = tokenizer.pieces_of(ids)
    assert [piece.id for piece in pieces] == ids
    assert max((piece.end for piece in pieces), default=0) == len(text)


def test_special_ids_are_skipped() -> None:
    for tokenizer in TRAINED.values():
        ids = tokenizer.encode("The cat")
        assert tokenizer.decode([SOS, *ids, EOS, tokenizer.pad]) == "The cat"
        assert [tokenizer.token(id) for id in (0, 1, 2, tokenizer.size - 1)] == ["</s>", "<unk>", "<s>", "<pad>"]
        assert tokenizer.decode([UNK]) == "⁇"


def test_lowercase() -> None:
    tokenizer = train_tokenizer(LINES, config.TokenizerSettings(kind="bpe", vocab_size=340, lowercase=True), seed=1)
    assert tokenizer.decode(tokenizer.encode("The GRÖSSE straße")) == "the grösse straße"


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded(kind: str, tmp_path: Path) -> None:
    tokenizer = TRAINED[kind]
    tokenizer.save(tmp_path, "source")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == ({"source.json", "source.model"} if kind in SUBWORDS else {"source.json"})
    again = load_tokenizer(tmp_path, "source")
    assert (again.size, again.kind, again.lowercase, again.tokens) == (
        *(tokenizer.size, kind, False, tokenizer.tokens),
    )
    assert again.hash() == tokenizer.hash()
    assert again.encode_many([*LINES, "zebra 🦓"]) == tokenizer.encode_many([*LINES, "zebra 🦓"])


@pytest.mark.parametrize("kind", KINDS)
def test_hash_is_of_the_vocabulary(kind: str) -> None:
    settings = config.TokenizerSettings(kind=kind, vocab_size=SIZE[kind])
    assert train_tokenizer(LINES, settings, seed=2).hash() == TRAINED[kind].hash()  # all lines fit: no chance in it
    hashes = {tokenizer.hash() for tokenizer in TRAINED.values()}
    hashes.add(train_tokenizer(LINES[10:], settings, seed=1).hash())
    hashes.add(
        train_tokenizer(
            LINES, config.TokenizerSettings(kind=kind, vocab_size=SIZE[kind], lowercase=True), seed=1
        ).hash()
    )
    assert len(hashes) == len(KINDS) + 2


@pytest.mark.parametrize("kind", SUBWORDS)
def test_too_large_a_vocabulary_says_how_large_it_can_be(kind: str) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer.vocab_size 8000 is more .* set it to (\d+) or less") as raised:
        train_tokenizer(LINES, config.TokenizerSettings(kind=kind), seed=1)
    largest = int(str(raised.value).split()[-3])
    assert train_tokenizer(LINES, config.TokenizerSettings(kind=kind, vocab_size=largest), seed=1).size == largest
    with pytest.raises(TokenizerError, match="more than the data supports"):
        train_tokenizer(LINES, config.TokenizerSettings(kind=kind, vocab_size=largest + 1), seed=1)


@pytest.mark.parametrize("kind", SUBWORDS)
def test_too_small_a_vocabulary_says_how_small_it_can_be(kind: str) -> None:
    with pytest.raises(
        TokenizerError, match=r"tokenizer.vocab_size 100 is too small .* set it to (\d+) or more"
    ) as raised:
        train_tokenizer(LINES, config.TokenizerSettings(kind=kind, vocab_size=100), seed=1)
    smallest = int(str(raised.value).split()[-3])
    tokenizer = train_tokenizer(LINES, config.TokenizerSettings(kind=kind, vocab_size=smallest), seed=1)
    assert tokenizer.size == smallest
    assert tokenizer.decode(tokenizer.encode("東京 Größe")) == "東京 Größe"


def test_a_large_alphabet_leaves_room_for_subwords() -> None:
    rare = [f"the cat and {chr(code)}" for code in range(0x4E00, 0x4E00 + 300)]
    tokenizer = train_tokenizer(rare * 2 + LINES * 20, config.TokenizerSettings(vocab_size=500), seed=1)
    alphabet = [token for token in tokenizer.tokens if len(token) == 1]
    assert len(alphabet) <= (500 - 260) // 2 + 1
    assert tokenizer.decode(tokenizer.encode(rare[0])) == rare[0]


def test_words_are_ranked_by_frequency_then_text() -> None:
    tokenizer = train_tokenizer(["b a c", "c d"], config.TokenizerSettings(kind="word", vocab_size=8), seed=1)
    assert tokenizer.tokens == ("</s>", "<unk>", "<s>", "▁c", "▁a", "▁b", "▁d", "<pad>")
    larger = train_tokenizer(["b a c", "c d"], config.TokenizerSettings(kind="word", vocab_size=8000), seed=1)
    assert larger.tokens == tokenizer.tokens  # there are no more words than these


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lines", [[], ["", " \n", "\x00"]])
def test_nothing_to_learn_from(kind: str, lines: list[str]) -> None:
    with pytest.raises(TokenizerError, match="no text"):
        train_tokenizer(lines, config.TokenizerSettings(kind=kind), seed=1)


def test_a_line_without_spaces_may_be_long() -> None:
    tokenizer = train_tokenizer(["ab" * 100_000, "The cat"], config.TokenizerSettings(vocab_size=270), seed=1)
    assert tokenizer.decode(tokenizer.encode("abab" * 50_000)) == "abab" * 50_000


@given(st.integers(0, 60), st.integers(1, 20), st.integers(1, 200), st.integers(0, 5))
def test_sample_keeps_order_and_limits(count: int, most_lines: int, most_characters: int, seed: int) -> None:
    lines = [f"{number:03}" for number in range(count)]
    sample = sample_lines(iter(lines), seed, most_lines, most_characters)
    assert sample == sorted(sample)
    assert len(sample) == min(count, most_lines, most_characters // 3)
    assert sample == sample_lines(lines, seed, most_lines, most_characters)


def test_sample_is_uniform() -> None:
    lines = [str(number % 10) for number in range(100)]
    drawn = [line for seed in range(400) for line in sample_lines(lines, seed, most_lines=5)]
    for digit in range(10):  # 2,000 draws: 200 of each, with a standard deviation of 13
        assert 140 < drawn.count(str(digit)) < 260


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "source.json: cannot read the tokenizer"),
        ("{", "not a valid tokenizer file"),
        ("[]", "not a valid tokenizer file"),
        ('{"kind": "word", "size": 5}', "not a valid tokenizer file"),
        ('{"kind": "word", "size": 6, "lowercase": false, "tokens": ["\\ud800"]}', "not a valid tokenizer file"),
        ('{"kind": "word", "size": 6, "lowercase": false, "tokens": ["a"]}', "the size is 6, but there are 5 tokens"),
        ('{"kind": "bytes", "size": 6, "lowercase": false}', 'unknown kind of tokenizer "bytes"'),
        ('{"kind": "bpe", "size": 6, "lowercase": false}', "source.model: cannot read the tokenizer"),
    ],
)
def test_damaged_header(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "source.json").write_text(content, encoding="utf-8")
    with pytest.raises(TokenizerError, match=message) as raised:
        load_tokenizer(tmp_path, "source")
    assert "\n" not in str(raised.value)


def test_damaged_model(tmp_path: Path) -> None:
    TRAINED["bpe"].save(tmp_path, "source")
    model = tmp_path / "source.model"
    whole = model.read_bytes()
    model.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TokenizerError):
        load_tokenizer(tmp_path, "source")
    model.write_bytes(b"nothing of the kind")
    with pytest.raises(TokenizerError, match=r"source\.model: not a SentencePiece model"):
        load_tokenizer(tmp_path, "source")


def test_header_is_plain(tmp_path: Path) -> None:
    TRAINED["unigram"].save(tmp_path, "target")
    header = json.loads((tmp_path / "target.json").read_text(encoding="utf-8"))
    assert header == {"kind": "unigram", "size": SIZE["unigram"], "lowercase": False}


def test_training_is_silent_and_needs_no_torch() -> None:
    program = (
        "import sys; from regard import config; from regard.data import store; from regard.text import tokenizer\n"
        "settings = config.TokenizerSettings(vocab_size=270)\n"
        "tokenizer.train_tokenizer(['The cat sees the cat'] * 9, settings, 1).encode('cat')\n"
        "assert 'torch' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_interface_is_shared() -> None:
    assert all(isinstance(tokenizer, Tokenizer) for tokenizer in TRAINED.values())
    assert {kind: tokenizer.size for kind, tokenizer in TRAINED.items()} == SIZE
