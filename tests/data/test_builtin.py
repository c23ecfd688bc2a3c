"""The built-in corpora: their names, their parts, and errors about them."""

import pytest

from regard.config import Corpus
from regard.data.builtin import PARTS, corpus_of, part_names, part_of, read_conversations, read_phrases, read_texts
from regard.data.pairs import content_hash
from regard.errors import CorpusError
from regard.registry import BUILTIN

HASHES = {
    "phrasebook": "08e05df9a4f07000c45e4594ad0204820fe812b903712fa5ceba67ecad071789",
    "phrasebook:valid": "5eadb8e27625f0a0be237efc3f8a24a7e8a780e4e060afd64ad38b9cac47fadb",
    "phrasebook:test": "3a1b784f449c77e029375fddc67c8614f7b862256cfeb1f252eaf170ebe1f735",
    "smalltalk": "534dc84e5500560711144e9d73bcdbe0750b08d38e94f08453489e1445666f3c",
    "smalltalk:valid": "e9a2dce71d13c284c0b0288b54f793c1df79742709a00b8275538e81d0fd828c",
    "smalltalk:test": "806e6b16d88db1150d132de7f2146de4c5ff18b8ce7314f83b5e4164e359b2f6",
    "shapes": "e7922f90e94c51b20a1fe53df53ccae8e42c697f5dd1ce1821011c29e480426f",
    "shapes:valid": "6f579342fb8f1d9620dc83c5404024ecf207043b11db8f2314c38fd6a02c1b48",
    "shapes:test": "d0b8ce654903296d8c9ab02d9941bdea195b566da40aeaa2750a1d4ce43f5438",
}
"""Of what the grammars wrote when their corpora were packaged."""


def test_every_part_of_every_corpus_is_as_it_was():
    assert [name for corpus in BUILTIN for name in part_names(corpus)] == list(HASHES)
    assert {name: content_hash(Corpus(name)) for name in HASHES} == HASHES


def test_sizes():
    assert [len(read_phrases(part)) for part in PARTS] == [24_000, 500, 1_000]
    assert [len(read_conversations(part)) for part in PARTS] == [3_000, 150, 300]


def test_texts_are_the_source_side_of_pairs_or_the_turns_of_conversations():
    assert list(read_texts("phrasebook:valid")) == [phrase.source for phrase in read_phrases("valid")]
    turns = [turn for conversation in read_conversations("test") for turn in conversation]
    assert list(read_texts("smalltalk:test")) == turns


def test_a_phrase_has_its_alignment_and_roles():
    shower = read_phrases()[1]
    assert (shower.source, shower.target) == ("I take a shower", "Faccio la doccia")
    assert shower.alignment == ((0, 0), (1, 0), (2, 1), (3, 2))
    assert (shower.source_roles.subject, shower.source_roles.verb, shower.source_roles.object) == ((0,), (1,), (2, 3))
    assert (shower.target_roles.subject, shower.target_roles.verb, shower.target_roles.object) == ((), (0,), (1, 2))


def test_names():
    assert [part_of(name) for name in part_names("smalltalk")] == list(PARTS)
    assert corpus_of("phrasebook:anything") == "phrasebook"
    assert corpus_of("phrasebook.en") == corpus_of("") == corpus_of("data/phrasebook") == ""
    with pytest.raises(CorpusError, match=r'^smalltalk:tset: .* has no such part; did you mean "smalltalk:test"'):
        part_of("smalltalk:tset")
    with pytest.raises(CorpusError, match="its parts are phrasebook, phrasebook:valid, phrasebook:test"):
        part_of("phrasebook:" + 40 * "x")
