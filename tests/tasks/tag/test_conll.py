"""CoNLL files: what is read, what is refused, and words as pieces."""

import gzip
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.config import Corpus, TokenizerSettings
from regard.errors import CorpusError
from regard.tasks.tag.conll import TaggedSentence, looks_like_columns, read_tagged, read_words, write_conll
from regard.tasks.tag.data import encode_words, make_words, windows
from regard.tasks.tag.settings import TagSettings
from regard.tasks.tag.spans import find_scheme, find_spans
from regard.text.tokenizer import EOS, SOS, UNK, train_tokenizer

CHUNKS = "He PRP B-NP\nreckons VBZ B-VP\n\n\nIt PRP B-NP\n"


def read(path, text: str | bytes, column: int = 0) -> list[TaggedSentence]:
    content = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return list(read_tagged(Corpus(str(path)), column))


@pytest.mark.parametrize("name", ["a.txt", "a.conll", "a.bio", "a.tsv", "train", "a.txt.gz"])
def test_a_file_of_columns(tmp_path, name):
    wanted = [TaggedSentence(("He", "reckons"), ("B-NP", "B-VP")), TaggedSentence(("It",), ("B-NP",))]
    assert read(tmp_path / name, CHUNKS) == wanted
    assert read(tmp_path / name, CHUNKS.replace(" ", "\t").replace("\n", "\r\n")) == wanted
    assert read(tmp_path / name, CHUNKS.rstrip("\n")) == wanted


def test_the_column_of_the_labels_can_be_said(tmp_path):
    [one, _] = read(tmp_path / "a.txt", CHUNKS, column=2)
    assert one.tags == ("PRP", "VBZ")


def test_documents_and_comments_are_no_words(tmp_path):
    text = "-DOCSTART- -X- O\n\n# text = He is\n# a note\nHe O\n# O\nis O\n\n# B-X\n2 O\n"
    assert [one.tokens for one in read(tmp_path / "a.txt", text)] == [("He", "#", "is"), ("#", "2")]


def test_a_space_that_does_not_break_is_part_of_a_word(tmp_path):
    [one] = read(tmp_path / "a.txt", "10\u00a0000 NUM\n")
    assert one == TaggedSentence(("10\u00a0000",), ("NUM",))


def test_conllu_gives_the_parts_of_speech(tmp_path):
    rows = ["# text = Vámonos al mar", "1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_"]
    for number, form, tag in ((1, "Vamos", "VERB"), (2, "nos", "PRON"), (3, "al", "ADP")):
        rows.append(f"{number}\t{form}\tlemma\t{tag}\tX\t_\t0\troot\t_\t_")
    rows.append("3.1\tunsaid\t_\tNOUN\t_\t_\t_\t_\t_\t_")
    text = "\n".join(rows) + "\n\n"
    assert read(tmp_path / "a.conllu", text) == [TaggedSentence(("Vamos", "nos", "al"), ("VERB", "PRON", "ADP"))]
    assert read(tmp_path / "a.conllu", text, column=5)[0].tags == ("X",) * 3


def test_json_lines(tmp_path):
    sentence = TaggedSentence(("New York", "is"), ("B-LOC", "O"))
    assert read(tmp_path / "a.jsonl", json.dumps(sentence._asdict()) + "\n\n") == [sentence]


BAD = {
    "too few columns": ("a.txt", "He B-NP\nis\n", "a.txt:2: 1 column in this row, not at least 2"),
    "no such column": ("a.txt", "He B-NP\n", "a.txt:1: 2 columns in this row, not at least 3"),
    "not UTF-8": ("a.txt", b"He O\n\xff\xfe O\n", "a.txt:2: not UTF-8"),
    "empty": ("a.txt", "", "the file is empty"),
    "CoNLL-U of spaces": ("a.conllu", "1 He he PRON\n", "a.conllu:1: 1 columns between tabs, but CoNLL-U has 10"),
    "broken JSON": ("a.jsonl", "{\n", "a.jsonl:1: broken JSON"),
    "no object": ("a.jsonl", "[]\n", 'a line is an object with "tokens" and "tags"'),
    "no tags": ("a.jsonl", '{"tokens": ["a"]}\n', '"tags" is not a list of non-empty texts'),
    "not as many": ("a.jsonl", '{"tokens": ["a"], "tags": []}\n', "1 tokens, but 0 tags"),
    "another kind of file": ("a.parquet", "x", "not a file of labeled words"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_told_with_its_place(tmp_path, case):
    name, text, message = BAD[case]
    with pytest.raises(CorpusError) as error:
        read(tmp_path / name, text, column=3 if case == "no such column" else 0)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_other_files_that_cannot_be_read(tmp_path):
    with pytest.raises(CorpusError, match="no such file"):
        list(read_tagged(Corpus(str(tmp_path / "none.txt"))))
    with pytest.raises(CorpusError, match="leave out --target"):
        read_tagged(Corpus("a.txt", "b.txt"))
    with pytest.raises(CorpusError, match="CoNLL-U has 10 columns"):
        read(tmp_path / "a.conllu", "1\ta\ta\tX\t_\t_\t_\t_\t_\t_\n", column=11)


word = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Z")), min_size=1, max_size=5).filter(
    lambda text: not text.startswith(("#", "-DOCSTART-", "\ufeff"))
)


@settings(deadline=None)
@given(
    st.lists(st.lists(st.tuples(word, st.sampled_from(["O", "B-X"])), min_size=1, max_size=4), min_size=1, max_size=4)
)
def test_what_is_written_is_read_again(tmp_path_factory, made):
    sentences = [TaggedSentence(*map(tuple, zip(*pairs, strict=True))) for pairs in made]
    path = tmp_path_factory.mktemp("conll") / "a.conll"
    path.write_text("\n".join(write_conll(sentences)) + "\n", encoding="utf-8")
    assert list(read_tagged(Corpus(str(path)))) == sentences
    assert list(read_words(path)) == [one.tokens for one in sentences]
    path = path.with_suffix(".jsonl")
    path.write_text("".join(f"{json.dumps(one._asdict())}\n" for one in sentences), encoding="utf-8")
    assert list(read_tagged(Corpus(str(path)))) == sentences


# ---------------------------------------------------------------------------------------------------------------------
# Words as pieces


@pytest.mark.parametrize("kind", ["character", "bpe"])
def test_words_become_pieces_between_marks(kind):
    size = 285 if kind == "bpe" else 40
    tokenizer = train_tokenizer(
        ["the cat sees the dog", "a dog sees"], TokenizerSettings(kind=kind, vocab_size=size), 1
    )
    [[the, cat], [again]] = encode_words([["the", "cat"], ["the"]], tokenizer, TagSettings())
    assert the == again
    assert (the[0], the[-1]) == (SOS, EOS)
    assert tokenizer.decode(cat) == "cat"
    [[odd, nothing]] = encode_words([["\x01", ""]], tokenizer, TagSettings())
    assert odd == nothing == [SOS, EOS]
    [[long]] = encode_words([["cat" * 30]], tokenizer, TagSettings(max_word_pieces=5))
    assert len(long) == 7
    if kind == "character":
        assert tokenizer.decode(long) == "catat"
        assert UNK in encode_words([["猫"]], tokenizer, TagSettings())[0][0]


def test_sentences_are_joined_with_their_labels():
    batch = make_words([[[2, 5, 0], [2, 0]], [[2, 7, 8, 0]]], 9, [[1, 2], [3]])
    assert batch.ids_BTS.tolist() == [[[2, 5, 0, 9], [2, 0, 9, 9]], [[2, 7, 8, 0], [9, 9, 9, 9]]]
    assert batch.target_BT.tolist() == [[1, 2], [3, 0]]
    assert batch.mask_BT.tolist() == [[True, True], [True, False]]
    assert batch.target_tokens == 3
    last = batch.rows(torch.tensor([1]))
    assert last.index_B.tolist() == [1]
    assert last.ids_BTS.shape == (1, 2, 4)  # padded as before


@settings(deadline=None)
@given(st.integers(1, 500), st.integers(8, 60))
def test_every_word_of_a_long_sentence_is_answered_once_with_neighbours(length, most):
    found = list(windows(length, most))
    answered = [place for one in found for place in range(one.first, one.last)]
    assert answered == list(range(length))
    for one in found:
        assert one.end - one.start <= most
        assert one.start <= one.first < one.last <= one.end
        margin = most // 5
        assert one.start == 0 or one.first - one.start >= margin
        assert one.end == length or one.end - one.last >= margin


SHARED = Path(__file__).parents[4] / "shared" / "data"


@pytest.mark.skipif(not (SHARED / "conll2000").is_dir(), reason="the shared data is not there")
def test_conll_2000_is_as_large_as_its_paper_says():
    """Tjong Kim Sang and Buchholz 2000: 211,727 tokens and 106,978 chunks to train on."""
    sentences = list(read_tagged(Corpus(str(SHARED / "conll2000" / "train.txt.gz"))))
    assert len(sentences) == 8936
    assert sum(len(sentence.tokens) for sentence in sentences) == 211_727
    assert find_scheme(sentence.tags for sentence in sentences) == "BIO"
    assert sum(len(find_spans(sentence.tags)) for sentence in sentences) == 106_978


def test_words_of_json_lines_need_no_labels(tmp_path):
    path = tmp_path / "words.jsonl"
    path.write_text('{"tokens": ["He", "waits"]}\n\n{"tokens": ["So"], "tags": ["O"]}\n')
    assert list(read_words(path)) == [("He", "waits"), ("So",)]
    path.write_text('{"text": "He waits"}\n')
    with pytest.raises(CorpusError, match='"tokens" is not a list of non-empty texts'):
        list(read_words(path))


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("He PRP B-NP\nwaits VB B-VP\n. . O\n\nSo RB O\n", True),
        ("He\tB-NP\nwaits\tB-VP\n.\tO\n\n", True),
        ("He PRP B-NP\nwaits VB B-VP\n. . O\n", False),  # no line is empty
        ("He waits for me.\n\nSo do I.\n\nAnd she does not wait for anybody.\n", False),
        ("He waits.\n\nSo do.\n\nI am.\n", False),
        ("One\n\nTwo\n\nThree\n\n", False),
        ("", False),
    ],
)
def test_columns_are_told_from_text(text, right):
    assert looks_like_columns(text.splitlines()) is right


def test_a_word_may_be_a_no_break_space(tmp_path):
    """French and German corpora have such words; what a run keeps of them must be read again."""
    sentence = TaggedSentence(("10", "\u00a0", "a\u00a0b"), ("B-X", "O", "O"))
    [found] = read(tmp_path / "a.conll", "10 B-X\n\u00a0 O\na\u00a0b O\n")
    assert found == sentence
    assert read(tmp_path / "a.jsonl", json.dumps(sentence._asdict()) + "\n") == [sentence]
    assert read(tmp_path / "b.conll", "\n".join(write_conll([sentence])) + "\n") == [sentence]
    with pytest.raises(CorpusError, match="not a list of non-empty texts"):
        read(tmp_path / "b.jsonl", '{"tokens": ["a", " "], "tags": ["O", "O"]}\n')
