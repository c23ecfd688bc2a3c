"""Translations of words that are learned from sentence pairs, against pairs whose alignment is known."""

from __future__ import annotations

import random

import pytest

from regard.data import dictionary
from regard.data.builtin import read_phrases
from regard.data.dictionary import every_nth, learn_dictionary
from regard.text.words import word_texts


def pairs(count: int, frequent: int = 20, rare: int = 200, seed: int = 1) -> list[tuple[list[str], list[str]]]:
    """Sentences of frequent words and one rare word, translated word by word; two neighbors may change places."""
    draw, found = random.Random(seed), []
    for number in range(count):
        words = [f"a{draw.randrange(frequent)}" for _ in range(draw.randint(3, 7))]
        words.insert(draw.randint(0, len(words)), f"rare{number % rare}")
        target = [word.replace("a", "b", 1) if word[0] == "a" else word.replace("rare", "selten") for word in words]
        place = draw.randrange(len(words) - 1)
        target[place], target[place + 1] = target[place + 1], target[place]
        found.append((words, target))
    return found


def test_every_word_gets_its_translation_even_words_seen_twice() -> None:
    found = learn_dictionary(pairs(400))
    right = {f"a{number}": f"b{number}" for number in range(20)}
    right |= {f"rare{number}": f"selten{number}" for number in range(200)}
    assert sum(found.get(word) == other for word, other in right.items()) >= 0.97 * len(right)


def test_unknown_translations_have_priority() -> None:
    """The word "hund" is translated by "dog" more often, but the model that asks knows this word."""
    lines = [("der hund rennt", "the dog runs")] * 5 + [("ein hund schläft", "a mutt sleeps")] * 4
    lines += [("der mann rennt", "the man runs"), ("ein mann schläft", "a man sleeps")] * 4
    texts = [(source.split(), target.split()) for source, target in lines]
    assert learn_dictionary(texts)["hund"] == "dog"
    assert learn_dictionary(texts, known={"the", "a", "dog", "man", "runs", "sleeps"})["hund"] == "mutt"


def test_names_that_stay_need_no_entry() -> None:
    texts = [(["Waldi", word], ["Waldi", word.upper()]) for word in ("rennt", "schläft", "bellt")]
    assert learn_dictionary(texts) == {"bellt": "BELLT", "rennt": "RENNT", "schläft": "SCHLÄFT"}


def test_nothing_is_learned_from_nothing() -> None:
    assert learn_dictionary([]) == {}
    assert learn_dictionary([(["a"], []), ([], ["b"])]) == {}


def test_the_size_of_the_sample_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    assert every_nth(29_000, 60.0) == 1
    assert every_nth(1_000_000, 125.0) == 105  # 25 words on a side: 625 million pairs of words
    monkeypatch.setattr(dictionary, "MOST", 100)
    assert len(learn_dictionary(pairs(400))) < 40


def test_entries_for_rare_words_of_the_phrasebook_are_its_gold_alignments() -> None:
    phrases = read_phrases()[:3000]
    texts = [(word_texts(phrase.source), word_texts(phrase.target)) for phrase in phrases]
    found, linked = learn_dictionary(texts), set[tuple[str, str]]()
    for phrase, (source, target) in zip(phrases, texts, strict=True):
        linked |= {(source[s], target[t]) for s, t in phrase.alignment}
    right = [link in linked for link in found.items()]
    assert len(found) > 500
    assert sum(right) / len(right) >= 0.9
