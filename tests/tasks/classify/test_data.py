"""Labelled documents: files read, text cleaned, sentences cut, token ids stored and joined."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import Corpus, TokenizerSettings
from regard.errors import CorpusError
from regard.tasks.classify.document_text import (
    encode_document,
    make_windows,
    plain,
    sentences_of,
    show_document,
)
from regard.tasks.classify.documents import LabeledDocument, read_documents
from regard.tasks.classify.settings import ClassifySettings
from regard.text.tokenizer import EOS, train_tokenizer

EXPECTED = [LabeledDocument(("good",), "A film, and a good one."), LabeledDocument(("bad",), 'He said "no".')]


def write(folder, name, text):
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return Corpus(str(path))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv", 'good\tA film, and a good one.\n\nbad\tHe said "no".\n'),
        ("a.tsv.gz", 'label\ttext\ngood\tA film, and a good one.\nbad\tHe said "no".\n'),
        ("a.csv", 'text,category\n"A film, and a good one.",good\n"He said ""no"".",bad\n'),
        ("a.csv", 'Label,id,Text\ngood,1,"A film, and a good one."\nbad,2,"He said ""no""."\n'),
        ("a.jsonl", '{"label": "good", "text": "A film, and a good one."}\n'
                    '{"labels": ["bad"], "text": "He said \\"no\\"."}\n'),
    ],
)  # fmt: skip
def test_every_format_gives_the_same_documents(tmp_path, name, text):
    assert list(read_documents(write(tmp_path, name, text))) == EXPECTED


def test_labels_may_be_numbers_and_lists(tmp_path):
    text = '{"label": 0, "text": "x"}\n{"label": true, "text": "x"}\n{"labels": ["a", "b", "a"], "text": "x"}\n'
    text += '{"labels": [], "text": "x"}\n'
    labels = [document.labels for document in read_documents(write(tmp_path, "a.jsonl", text))]
    assert labels == [("0",), ("true",), ("a", "b"), ()]


def test_a_long_quoted_field_is_read_whole(tmp_path):
    text = "word " * 40_000
    [document] = read_documents(write(tmp_path, "a.csv", f'text,label\n"{text}\nand on",x\n'))
    assert document.text == f"{text}\nand on"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "good\tx\nno tab here\n", r"a\.tsv:2: no tab in this row"),
        ("a.tsv", "\tx\n", r"a\.tsv:1: no label in this row"),
        (
            "a.csv",
            "words,kind\nx,y\n",
            r"a\.csv:1: the first line must be a header with label or labels or category, and text",
        ),
        ("a.csv", "text,label\nx\n", r"a\.csv:2: 1 columns, but the header has 2"),
        ("a.jsonl", '{"label": 1}\n', r'a\.jsonl:1: no "text" here'),
        ("a.jsonl", '{"text": "x"}\n', r'a\.jsonl:1: no "label" here'),
        ("a.jsonl", '{"text": "x", "label": {}}\n', r"a\.jsonl:1: \{\} is not a label"),
        ("a.jsonl", "{\n", r"a\.jsonl:1: broken JSON"),
        ("a.txt", "x\n", r"a\.txt: not a file of labeled documents"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path, name, text, message):
    with pytest.raises(CorpusError, match=message):
        list(read_documents(write(tmp_path, name, text)))


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("One.<br /><br />Two.", "One.\n\nTwo."),
        ("A <b>bold</b> move", "A bold move"),
        ("Fish &amp; chips &lt;3", "Fish & chips <3"),
        ("I <3 it, a < b > c", "I <3 it, a < b > c"),
        ("<p>One</p><p>Two</p>", "\nOne\n\nTwo\n"),
        ("x <!-- hidden --> y", "x  y"),
    ],
)
def test_markup_becomes_plain_text(marked, expected):
    assert plain(marked) == expected


def test_markup_can_be_kept():
    assert sentences_of("a <b>b</b>", ClassifySettings(markup="keep")) == ["a <b>b</b>"]
    assert sentences_of("One.<br />Two here", ClassifySettings()) == ["One.", "Two here"]


def test_an_abbreviation_stays_with_its_name():
    text = "We saw Dr. Jones today. He slept. Wow! It was Mr. T. Smith."
    assert sentences_of(text, ClassifySettings()) == [
        "We saw Dr. Jones today.",
        "He slept.",
        "Wow! It was Mr. T. Smith.",
    ]
    assert sentences_of("Dr. Jones slept.", ClassifySettings()) == ["Dr. Jones slept."]


@given(st.lists(st.integers(0, 30), max_size=12), st.sampled_from(["middle", "end"]))
def test_arranging_keeps_order_and_limits(lengths, truncate):
    settings = ClassifySettings(sentence_tokens=8, max_tokens=40, truncate=truncate)
    stretches, left_out = make_windows(lengths, settings)
    sizes = [end - start for _, start, end in stretches]
    assert stretches == sorted(stretches)
    assert all(1 <= size <= 8 for size in sizes)
    assert sum(sizes) + left_out == sum(lengths)
    assert sum(sizes) <= 40
    assert left_out == 0 or sum(sizes) > 40 - 8


def test_the_middle_or_the_end_of_a_long_document_is_left_out():
    lengths = [4] * 10
    middle, left_out = make_windows(lengths, ClassifySettings(sentence_tokens=4, max_tokens=16))
    assert [sentence for sentence, _, _ in middle] == [0, 1, 8, 9]
    assert left_out == 24
    end, _ = make_windows(lengths, ClassifySettings(sentence_tokens=4, max_tokens=16, truncate="end"))
    assert [sentence for sentence, _, _ in end] == [0, 1, 2, 3]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(
        ["the cat sat on the mat , and it was happy ."], TokenizerSettings(kind="word", lowercase=True), 1
    )


def test_a_document_without_text_is_one_end(tokenizer):
    for text in ("", " \n ", "<br />"):
        assert encode_document(text, tokenizer, ClassifySettings()).sentences == [[EOS]]
        assert show_document(text, tokenizer, ClassifySettings()) == []


def test_what_is_shown_is_what_is_read(tokenizer):
    text = "The cat sat on the mat, and it was happy. It sat.<br />And zebras 🦓 too: 猫。猫"
    settings = ClassifySettings(sentence_tokens=4, max_tokens=20)
    shown, encoded = show_document(text, tokenizer, settings), encode_document(text, tokenizer, settings)
    assert [[piece.id for piece in one.pieces] for one in shown] == encoded.sentences
    assert shown[0].text == "the cat sat on"
    for one in shown:
        assert one.pieces[0].start == 0
        assert one.pieces[-1].end == len(one.text)
