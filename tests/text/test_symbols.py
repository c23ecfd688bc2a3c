"""Symbols: texts that are one token wherever they stand, in every kind of vocabulary."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import config
from regard.tasks.chat.data import TURN, join_turns
from regard.text.subword_regularization import resample
from regard.text.tokenizer import load_tokenizer, train_tokenizer

LINES = [f"{who} {what}, {when}." for who in ("Anna", "The dog", "Tom") for what in ("sings", "sleeps", "<b> eats")
         for when in ("now", "today", "at 10")]  # fmt: skip
SIZES = {"bpe": 330, "unigram": 290, "word": 40, "character": 60}
TRAINED = {
    kind: train_tokenizer(
        LINES, config.TokenizerSettings(kind=kind, vocab_size=size, special_tokens=(TURN, "<end>")), seed=1
    )
    for kind, size in SIZES.items()
}
FIRST = 3  # after the end, the unknown and the start token

turns = st.lists(st.text(st.sampled_from("Annatodgs .,<>tu rn10")).map(str.strip).filter(bool), min_size=1, max_size=4)


@pytest.mark.parametrize("kind", SIZES)
def test_a_symbol_is_the_first_token_wherever_it_stands(kind):
    tokenizer = TRAINED[kind]
    assert tokenizer.symbols == (TURN, "<end>")
    assert (tokenizer.token(FIRST), tokenizer.token(FIRST + 1)) == (TURN, "<end>")
    ids = tokenizer.encode(f"Anna sings{TURN} Tom{TURN}<end> sleeps")
    assert [id for id in ids if id in (FIRST, FIRST + 1)] == [FIRST, FIRST, FIRST + 1]
    assert tokenizer.decode(ids) == f"Anna sings{TURN} Tom{TURN}<end> sleeps"


@pytest.mark.parametrize("kind", SIZES)
def test_words_after_a_symbol_are_the_words_they_always_are(kind):
    tokenizer = TRAINED[kind]
    apart = [*tokenizer.encode("Anna sings."), FIRST, *tokenizer.encode("Tom sleeps.")]
    together = tokenizer.encode(join_turns(["Anna sings.", "Tom sleeps."]))
    if kind == "character":  # a space between words is a token there, and the first word has none before it
        together.remove(tokenizer.tokens.index("▁"))
        apart.remove(tokenizer.tokens.index("▁"))
        apart = [id for id in apart if tokenizer.token(id) != "▁"]
        together = [id for id in together if tokenizer.token(id) != "▁"]
    assert together == apart


@given(turns, st.sampled_from(list(SIZES)))
def test_contexts_survive_and_have_one_mark_a_turn(said, kind):
    tokenizer = TRAINED[kind]
    context = join_turns(said)
    ids = tokenizer.encode(context)
    assert ids.count(FIRST) == len(said) - 1
    if 1 not in ids:  # nothing unknown
        assert tokenizer.decode(ids) == tokenizer.normalize(context)
    pieces = tokenizer.pieces(context)
    text = tokenizer.normalize(context)
    assert all(text[piece.start : piece.end] == TURN for piece in pieces if piece.id == FIRST)


@given(turns, st.sampled_from(["bpe", "unigram"]), st.integers(0, 9))
def test_sampling_leaves_symbols_whole(said, kind, seed):
    tokenizer = TRAINED[kind]
    ids = tokenizer.encode(join_turns(said))
    other = resample(tokenizer, ids, 0.5, random.Random(seed))
    assert tokenizer.decode(other) == tokenizer.decode(ids)
    assert other.count(FIRST) == len(said) - 1


@pytest.mark.parametrize("kind", SIZES)
def test_symbols_are_stored(kind, tmp_path):
    TRAINED[kind].save(tmp_path, "joint")
    opened = load_tokenizer(tmp_path, "joint")
    assert opened.symbols == (TURN, "<end>")
    assert opened.hash() == TRAINED[kind].hash()
    text = f"Anna{TURN} Tom"
    assert opened.encode(text) == TRAINED[kind].encode(text)
