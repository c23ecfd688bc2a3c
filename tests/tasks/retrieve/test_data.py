"""Knowledge bases from every format, what is wrong with them told by its place, and how they change."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import Corpus
from regard.errors import CorpusError, RunError
from regard.tasks.retrieve.data import (
    KnowledgeEntry,
    add,
    are_names,
    gather,
    read_entries,
    read_knowledge,
    read_markdown,
    remove,
    write_entries,
)
from tests.small_knowledge import write_faq

CARD = KnowledgeEntry(("Can I pay by card?", "Which cards?"), "Yes, by any card.")
HOURS = KnowledgeEntry(("When do you open?",), "At six.")


def read(path, content=None):
    if content is not None:
        path.write_text(content, encoding="utf-8")
    return read_knowledge(Corpus(str(path)))


def test_tsv_with_and_without_a_header(tmp_path):
    rows = "Can I pay by card?\tYes, by any card.\n\nWhen do you open?\tAt six.\nWhich cards?\tYes, by any card.\n"
    assert read(tmp_path / "a.tsv", rows) == [CARD, HOURS]
    assert read(tmp_path / "b.tsv", "question\tanswer\n" + rows) == [CARD, HOURS]
    packed = tmp_path / "c.tsv.gz"
    packed.write_bytes(gzip.compress(rows.encode()))
    assert read(packed) == [CARD, HOURS]


@pytest.mark.parametrize("header", ["question,answer", "text,category", "Text , Label"])
def test_csv_finds_its_columns_by_name(tmp_path, header):
    found = read(tmp_path / "a.csv", f'{header}\n"Bread, please?",sales\nA loaf?,sales\n"two\nlines?",other\n')
    assert found == [KnowledgeEntry(("Bread, please?", "A loaf?"), "sales"), KnowledgeEntry(("two lines?",), "other")]


def test_json_lines_with_one_question_or_several(tmp_path):
    lines = [
        {"questions": ["Can I pay by card?", "Which cards?"], "answer": "Yes, by any card."},
        {"question": "When do you open?", "answer": "At six.", "more": 1},
    ]
    assert read(tmp_path / "a.jsonl", "\n".join(map(json.dumps, lines))) == [CARD, HOURS]


def test_markdown_by_headings(tmp_path):
    found = read(write_faq(tmp_path / "faq.md"))
    assert [entry.questions for entry in found] == [
        ("When do you open?",),
        ("Do you sell bread without gluten?",),
        ("How can I order a birthday cake?",),
        ("Can I pay by card?",),
    ]
    assert found[1].answer == "Yes, on *Fridays*:\n\n- buckwheat loaf\n- rice rolls"


MARKDOWN = {
    "bold": (
        "# Shop\nIntro\n\n**Q: When?**\nA: At six.\n\n- **Where?**\n\nHere.",
        [("When?", "At six."), ("Where?", "Here.")],
    ),
    "several": ("**One?**\n**Two?**\n\nBoth.", [("One?|Two?", "Both.")]),
    "sections": ("# FAQ\n## Paying\n### Card?\nYes.\n## Coming\n### Bus?\n12", [("Card?", "Yes."), ("Bus?", "12")]),
    "underlined": (
        "Title\n=====\n\nWhen?\n-----\nAt six.\n\nWhere?\n---\nHere.",
        [("When?", "At six."), ("Where?", "Here.")],
    ),
    "underlined, with a number sign": ("#1 Opening\n==========\nAt six.", [("#1 Opening", "At six.")]),
    "code": ("## How?\n```\n# no heading\n**nor this?**\n```\n", [("How?", "```\n# no heading\n**nor this?**\n```")]),
    "front matter": ("---\ntitle: x\n---\n## When?\nNow.", [("When?", "Now.")]),
    "marks": ("## 1. `When` do *you* [open](x.html)? ##\nNow.", [("When do you open?", "Now.")]),
    "bold in an answer": (
        "## When?\n**Note**\nAt six.\n## Where?\nHere.",
        [("When?", "**Note**\nAt six."), ("Where?", "Here.")],
    ),
    "no question marks": (
        "# Shop\n## Opening hours\nSix.\n## Paying\nCash.",
        [("Opening hours", "Six."), ("Paying", "Cash.")],
    ),
    "nothing below": ("## When?\n\n## Where?\n", []),
}


@pytest.mark.parametrize(("text", "expected"), MARKDOWN.values(), ids=MARKDOWN.keys())
def test_markdown_as_people_write_it(text, expected):
    found = [("|".join(questions), answer) for questions, answer, _ in read_markdown(text.split("\n"))]
    assert found == expected


@given(st.text(alphabet="#*_`-=? aZ\n", max_size=80))
def test_any_markdown_is_read(text):
    for questions, answer, _ in read_markdown(text.split("\n")):
        assert answer.strip()
        assert questions


WRONG = {
    "a.tsv": ("When?\tNow.\nno tab here\n", r"a\.tsv:2: no tab"),
    "b.tsv": ("When?\t \n", r"b\.tsv:1: the question \"When\?\" has no answer"),
    "c.tsv": (" \tNow.\n", r"c\.tsv:1: no question"),
    "d.csv": ("a,b\n1,2\n", r"d\.csv:1: the first line must be a header with question or text"),
    "e.csv": ("question,answer\nx,y\na,b,c\n", r"e\.csv:3: 3 columns"),
    "f.jsonl": ('{"question": "x"}\n', r"f\.jsonl:1: no \"answer\""),
    "g.jsonl": ('{"question": 3, "answer": "y"}\n', r"g\.jsonl:1: no question"),
    "h.jsonl": ("{broken\n", r"h\.jsonl:1: broken JSON"),
    "i.md": ("Just text.\n", r"i\.md: the knowledge base is empty"),
    "j.tsv": ("\n\n", r"j\.tsv: the knowledge base is empty"),
    "k.tsv": ("", r"k\.tsv: the file is empty"),
    "l.txt": ("x", r"l\.txt: not a knowledge base"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told_with_its_place(tmp_path, name):
    content, message = WRONG[name]
    with pytest.raises(CorpusError, match=message):
        read(tmp_path / name, content)


def test_invalid_utf8_and_missing_files(tmp_path):
    (tmp_path / "a.tsv").write_bytes(b"a\tb\n\xff\tx\n")
    with pytest.raises(CorpusError, match=r"a\.tsv:2: not UTF-8"):
        read(tmp_path / "a.tsv")
    with pytest.raises(CorpusError, match="no such file"):
        read(tmp_path / "missing.md")


def test_a_question_that_comes_again_has_its_new_answer():
    entries = add([CARD, HOURS], [KnowledgeEntry(("when do you  OPEN?",), "At seven.")])
    assert entries == [CARD, KnowledgeEntry(("when do you  OPEN?",), "At seven.")]
    more = add([CARD, HOURS], [KnowledgeEntry(("Any card?",), "Yes, by any card.")])
    assert more == [KnowledgeEntry((*CARD.questions, "Any card?"), CARD.answer), HOURS]


def test_removing_questions_and_answers():
    assert remove([CARD, HOURS], ["which cards?"]) == (
        [KnowledgeEntry(("Can I pay by card?",), CARD.answer), HOURS],
        [],
    )
    assert remove([CARD, HOURS], ["at six."]) == ([CARD], [])
    assert remove([CARD], ["nobody knows"]) == ([CARD], ["nobody knows"])
    assert remove([HOURS], ["When do you open?"]) == ([], [])


def test_answers_that_are_names():
    assert are_names([KnowledgeEntry(("x",), "card_arrival"), KnowledgeEntry(("y",), "lost-card")])
    assert not are_names([CARD, HOURS])
    assert not are_names([KnowledgeEntry(("何時？",), "朝六時からです")])


@given(
    st.lists(
        st.tuples(st.lists(st.text(min_size=1), min_size=1, max_size=3), st.text(min_size=1)), min_size=1, max_size=5
    )
)
def test_a_run_keeps_entries_as_they_are(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("kept") / "knowledge.jsonl"
    entries = gather(KnowledgeEntry(tuple(questions), answer) for questions, answer in rows)
    write_entries(path, entries)
    assert read_entries(path) == entries


def test_a_damaged_file_of_a_run_is_told(tmp_path):
    (tmp_path / "k.jsonl").write_text('{"questions": 3}\n')
    with pytest.raises(RunError, match="damaged"):
        read_entries(tmp_path / "k.jsonl")
