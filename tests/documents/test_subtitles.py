"""Subtitles: numbers and times stay; sentences are translated whole and spread again."""

import pytest

from regard.documents import parse
from regard.errors import CorpusError
from tests.documents.answers import Said, said

HEADS = [
    "1\n00:00:01,000 --> 00:00:02,000\n",
    "2\n00:00:02,100 --> 00:00:03,000\n",
    "3\n00:00:09,000 --> 00:00:10,000\n",
]


def film(*texts, end="\n\n"):
    return "".join(f"{head}{text}{end}" for head, text in zip(HEADS, texts, strict=False))


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["Hello.", "How are you?"], ["Hello.", "How are you?"]),
        (["I think that", "you are right."], ["I think that you are right."]),
        (["I think...", "...you are right."], ["I think... ...you are right."]),
        (["Hello", "Ann is here."], ["Hello", "Ann is here."]),
        (["Well,", "Ann is here."], ["Well, Ann is here."]),
        (["I think.", "you", "see."], ["I think.", "you", "see."]),  # the third comes six seconds later
        (["two\nlines"], ["two lines"]),
        (["- Hello.\n- Hi."], ["Hello.", "Hi."]),
        (["-Hello,\nmy friend.\n{\\an8}<i>–Hi.</i>"], ["Hello, my friend.", "Hi."]),
        (["- I think that", "you are right."], ["I think that you are right."]),
        (["-5 degrees"], ["-5 degrees"]),
        (["This - is it"], ["This - is it"]),
        (["<i>Hello</i> {\\an8}there"], ["Hello there"]),
        (["<i>two\nlines</i>"], ["two lines"]),
        (["", "text"], ["text"]),
        (["♪ la la", "la ♪"], ["la la la"]),
        (["♪ la la ♪\n♪ lo lo ♪"], ["la la", "lo lo"]),
        (["♪♪"], []),
        (["<v Ann>Hello,\nmy friend.\n<v.loud Bob>Hi."], ["Hello, my friend.", "Hi."]),
        (["<v Ann>I think that", "<v Ann>you are right."], ["I think that you are right."]),
        (["<v Ann>I think that", "<v Bob>you are right."], ["I think that", "you are right."]),
    ],
)
def test_texts(texts, expected):
    assert parse("srt", film(*texts)).texts == expected


def test_a_sentence_is_spread_over_its_cues():
    answer = said("I think that you are right .", "Ich denke , dass du recht hast .", "0-0 1-1 2-3 3-4 4-6 5-5 6-7")
    made = parse("srt", film("I think that", "you are right.")).rebuild([answer])
    assert made == film("Ich denke, dass".replace(",", " ,"), "du recht hast .")


def test_every_cue_gets_a_word_while_there_are_enough():
    source = film("Say that", "again to")
    assert parse("srt", source).rebuild([Said("a b")]) == film("a", "b")
    assert parse("srt", source).rebuild([Said("a")]).count("-->") == 2


def test_lines_and_tags_stay():
    answer = said("one two three four", "uno due tre quattro", "0-0 1-1 2-2 3-3")
    assert parse("srt", film("{\\an8}<i>one two\nthree four</i>")).rebuild([answer]) == film(
        "{\\an8}<i>uno due\ntre quattro</i>"
    )
    assert parse("srt", film("one <b>two</b>\nthree four")).rebuild([answer]) == film("uno <b>due</b>\ntre quattro")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- One two.\n- Three four.", "- ONE TWO.\n- THREE FOUR."),
        ("<i>–one</i> two\nthree", "<i>–ONE</i> TWO\nTHREE"),
        ("<i>♪ one two ♪</i>", "<i>♪ ONE TWO ♪</i>"),
        ("one two ♪ three", "ONE TWO ♪ THREE"),
    ],
)
def test_dashes_and_notes_stay_where_they_stood(text, expected):
    document = parse("srt", film(text))
    assert document.rebuild([Said(text.upper()) for text in document.texts]) == film(expected)


def test_an_invisible_mark_at_the_start_of_a_line_adds_no_space():
    document = parse("srt", film("one two\n{\\k5}three"))
    assert document.rebuild([Said("ONE TWO THREE")]) == film("ONE TWO\n{\\k5}THREE")


def test_windows_line_ends_stay():
    source = film("Hello.").replace("\n", "\r\n")
    assert parse("srt", source).rebuild([Said("Ciao.")]) == source.replace("Hello", "Ciao")


def test_a_file_without_subtitles_is_told():
    with pytest.raises(CorpusError, match=r"^film\.srt:1: no subtitles found"):
        parse("film.srt", "Hello there")
    assert parse("srt", "\n").texts == []
