"""Markdown: what is a text, what stays, and that translations read as Markdown again."""

import pytest

from regard.documents import parse
from tests.documents.answers import Said, said


def rebuilt(source, *answers):
    return parse("markdown", source).rebuild(list(answers))


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("# A title\n\nSome text\nover two lines.\n\nMore.", ["A title", "Some text over two lines.", "More."]),
        ("A title\n=======\n\ntext", ["A title", "text"]),
        ("## A title ##\n", ["A title"]),
        ("- one\n- two\n  goes on\n1. three\n- [x] four", ["one", "two goes on", "three", "four"]),
        ("> quoted\n> text\n\n> > deeper", ["quoted text", "deeper"]),
        ("```python\nsome code\n```\nafter", ["after"]),
        ("~~~\ncode\n```\n~~~\nafter", ["after"]),
        ("text\n\n    some code\n\nafter", ["text", "after"]),
        ("- item\n\n    its second paragraph", ["item", "its second paragraph"]),
        ("---\ntitle: A page\n---\ntext", ["text"]),
        ("+++\ntitle = 'A page'\n+++\ntext", ["text"]),
        ("---\n\nOne\n\n---\n\nTwo", ["One", "Two"]),
        ("| Name | Age |\n|---|---:|\n| a dog | 3 |\n| a cat | 4 |", ["Name", "Age", "a dog", "a cat"]),
        ("a *red* and **big** dog", ["a red and big dog"]),
        ("***very*** snake_case_name 2*3*4", ["very snake_case_name 234"]),
        ("see [the page](https://a.org/x_y) and [that][r]\n\n[r]: /u 'T'", ["see the page and that"]),
        ("not [a link] here", ["not [a link] here"]),
        ("[r] here\n\n[r]: /u", ["r here"]),
        ("run `make all` now", ["run make all now"]),
        ("run `make all the other things now` then", ["run then"]),
        ("an ![image of a dog](d.png) here", ["image of a dog", "an here"]),
        ("a note[^1]\n\n[^1]: its text", ["a note", "its text"]),
        (r"not \*stressed\* &copy; here", ["not *stressed* © here"]),
        ("<div>\nsome <b>text</b>\n</div>\n\nafter", ["some text", "after"]),
        ("press <kbd>Enter</kbd> or <b>wait</b>", ["press Enter or wait"]),
        ("one  \ntwo\\\nthree", ["one two three"]),
        ("<me@a.org> says", ["me@a.org says"]),
        ("* * *\n***\n1234\n", []),
    ],
)
def test_texts(source, texts):
    assert parse("markdown", source).texts == texts


def test_marks_go_with_their_words():
    answer = said("the red house", "la casa rossa", "0-0 1-2 2-1")
    assert rebuilt("the *red* house", answer) == "la casa *rossa*"
    assert rebuilt("- the **red** [house](u_v)\n", answer) == "- la [casa](u_v) **rossa**\n"
    assert rebuilt("# the `red` house #", answer) == "# la casa `red` #"
    assert rebuilt("***the red house***", answer) == "***la casa rossa***"


def test_lines_stay_lines():
    answer = said("one two three four", "uno due tre quattro", "0-0 1-1 2-2 3-3")
    assert rebuilt("> one two\n> three four\n", answer) == "> uno due\n> tre quattro\n"
    assert rebuilt("one  \r\ntwo three four", answer) == "uno  \r\ndue tre quattro"
    assert not parse("markdown", "one two\nthree four").needs_alignment
    assert rebuilt("one two\nthree four", Said("uno due tre quattro cinque sei")) == "uno due tre\nquattro cinque sei"


def test_a_shortcut_keeps_its_definition():
    assert rebuilt("[house] here\n\n[house]: /u", said("house here", "casa qui", "0-0 1-1")) == (
        "[casa][house] qui\n\n[house]: /u"
    )
    assert rebuilt("[house]\n\n[house]: /u", Said("casa")) == "[casa][house]\n\n[house]: /u"


@pytest.mark.parametrize(
    ("answer", "made"),
    [
        ("a*b_c", r"a\*b\_c"),
        ("[x](y) <b>", r"\[x\](y) \<b>"),
        ("- minus", r"\- minus"),
        ("1. eins", r"1\. eins"),
        ("# nein", r"\# nein"),
    ],
)
def test_a_translation_reads_as_text(answer, made):
    assert rebuilt("word", Said(answer)) == made


def test_a_line_of_ours_makes_no_list():
    assert rebuilt("aa bb\ncc dd", Said("aa bb - cc")) == "aa bb\n\\- cc"


def test_a_pipe_does_not_end_a_cell():
    assert rebuilt("|a|b|\n|-|-|\n|c|d|", Said("x|y"), Said("b"), Said("c"), Said("d")) == (
        "|x\\|y|b|\n|-|-|\n|c|d|"
    )  # fmt: skip


def test_stress_around_nothing_is_left_out():
    answer = said("do so now please", "ora", "2-0")
    assert rebuilt("**do** *so* now please", answer) in ("**ora**", "ora", "*ora*")


def test_an_address_at_the_end_of_a_line_stays_there():
    answer = said("see for more", "siehe für mehr", "0-0 1-1 2-2")
    assert rebuilt("see https://a.org/b/c\nfor more", answer) == "siehe https://a.org/b/c\nfür mehr"
    assert rebuilt("see\nhttps://a.org/b/c for more", answer) == "siehe\nhttps://a.org/b/c für mehr"
