"""Plain text, the choice of a format, and what must not be lost."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

from regard.documents import format_of, parse
from regard.documents.markup import Fixed, read_words
from regard.errors import CorpusError, SettingsError
from regard.registry import FORMATS
from tests.documents.answers import Said, said


def test_lines_indentation_and_ends_stay():
    source = "  One. \r\n\r\n\tTwo\tthree\n---\n\u2028four\x0c"
    document = parse("notes.txt", source)
    assert document.texts == ["One.", "Two", "three", "four"]
    assert document.rebuild([Said(text.upper()) for text in document.texts]) == source.upper()
    assert not document.needs_alignment


def test_a_byte_order_mark_is_no_text():
    document = parse("txt", "\ufeffHello".encode())
    assert document.texts == ["Hello"]
    assert document.rebuild([Said("Ciao")]) == "\ufeffCiao".encode()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("html", "html"), ("Page.HTM", "htm"), (".md", "md"), ("a/b.c/film.srt", "srt"), ("de.po", "po")],
)
def test_formats(name, kind):
    assert format_of(name) == kind


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("page.docx", r"^page\.docx: unknown document format; known endings: \.txt, "),
        ("markdwon", r'^there is no document format "markdwon"; did you mean "markdown"\?; choose from txt, html, '),
        ("", r"^there is no document format"),
    ],
)
def test_unknown_formats_are_told(name, message):
    with pytest.raises(SettingsError, match=message):
        parse(name, "text")


def test_the_documentation_names_every_ending():
    page = (Path(__file__).parents[2] / "docs" / "documents.md").read_text(encoding="utf-8")
    listed = re.search(r"gives the format \(`([^`]+)`", page)
    assert listed
    assert listed[1].split() == [ending for ending in FORMATS if ending != ".txt"]


@pytest.mark.parametrize("ending", FORMATS)
def test_every_format_is_a_module_with_the_contract(ending):
    module = import_module(FORMATS[ending])
    assert list(inspect.signature(module.parse).parameters) == ["source", "draft", "name"]
    assert parse(f"a{ending}", b"").rebuild([]) == b""


def test_bytes_that_are_no_text_are_told():
    with pytest.raises(CorpusError, match=r"^a\.html:2: not UTF-8 \(byte 0xe9\)"):
        parse("a.html", b"one\ncaf\xe9")


def test_the_number_of_answers_is_checked():
    with pytest.raises(ValueError, match="1 answers for 2 texts"):
        parse("txt", "one\ntwo").rebuild([Said("uno")])


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("see https://a.org/x_(y)?z=1&w=2, or www.b.de.", ["https://a.org/x_(y)?z=1&w=2", "www.b.de"]),
        ("write to me.you+x@a-b.co.uk.", ["me.you+x@a-b.co.uk"]),
        ("%s and %(name)s, %5.2f%% of %1$s", ["%s", "%(name)s", "%5.2f", "%1$s"]),
        ("{} {0} {name:>8} ${home} {{ user }}", ["{}", "{0}", "{name:>8}", "${home}", "{{ user }}"]),
        ("100% sure, 50 %, a {b c} d@ e", []),
    ],
)
def test_what_must_not_change_is_found(text, kept):
    nodes = list(read_words(text))
    assert [node.raw for node in nodes if isinstance(node, Fixed)] == kept
    assert "".join(node.raw for node in nodes) == text


@pytest.mark.parametrize(
    ("source", "target", "lost"),
    [
        ("In 2020, 1,000.5 people", "1.000,5 Leute im Jahr 2020", ()),
        ("In 2020 and 2021", "2020 und 2020", ("2021",)),
        ("3 dogs", "drei Hunde", ("3",)),
        ("see www.a.org now", "siehe jetzt ww.a.org", ("www.a.org",)),
        ("٣ dogs", "3 Hunde", ()),
    ],
)
def test_losses_are_told(source, target, lost):
    assert parse("txt", source).lost([Said(target)]) == [lost]


def test_an_address_is_put_back():
    document = parse("txt", "see a.b@c.org now")
    assert document.rebuild([Said("siehe jetzt")]) in (
        "siehe a.b@c.org jetzt", "a.b@c.org siehe jetzt", "siehe jetzt a.b@c.org",
    )  # fmt: skip


def test_a_placeholder_within_a_word_is_left_to_the_word():
    document = parse("txt", "the %1th of %s")
    assert document.rebuild([said("the %1th of %s", "der %1te von %s", "0-0 1-1 2-2 3-3 4-4 5-5")]) == "der %1te von %s"
    assert document.lost([Said("der von %s")]) == [("%1",)]
