"""WebVTT: only the text of cues changes; the examples follow https://www.w3.org/TR/webvtt1/."""

import pytest

from regard.documents import parse
from regard.errors import CorpusError
from tests.documents.answers import Said, said, same

FILM = """\ufeffWEBVTT - a film
Kind: captions

REGION
id:fred width:40% lines:3

STYLE
::cue(v[voice="Ann"]) { color: lime }

NOTE
This film --
has notes.

intro
00:01.000 --> 00:04.000 region:fred align:left
<v.first.loud Ann>Hello <i>there</i> &amp; welcome.</v>

NOTE the second cue

100:00:05.000 --> 100:00:09.000 line:0
<v Ann>What is
<00:00:06.000>this?
<v Bob>A <c.yellow.bg_blue>dog</c>.

00:00:20.000 --> 00:00:21.000

NOTE the end
"""


def upper(document):
    return document.rebuild([Said(text.upper()) for text in document.texts])


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_only_the_text_of_cues_changes(end):
    source = FILM.replace("\n", end)
    document = parse("film.vtt", source.encode())
    assert document.texts == ["Hello there & welcome.", "What is this?", "A dog."]
    assert document.rebuild(same(document)) == source.encode()
    made = upper(document).decode()
    changes = {
        "Hello <i>there</i> &amp; welcome.": "HELLO <i>THERE</i> &amp; WELCOME.",
        "What is": "WHAT IS",
        ">this?": ">THIS?",
        "A <c.yellow.bg_blue>dog</c>.": "A <c.yellow.bg_blue>DOG</c>.",
    }
    for before, after in changes.items():
        source = source.replace(before, after)
    assert made == source


def film(*texts):
    return "WEBVTT\n\n" + "\n\n".join(
        f"{number}\n00:0{number}.000 --> 00:0{number}.900\n{text}" for number, text in enumerate(texts)
    )


def test_a_sentence_is_divided_among_its_cues():
    answer = said("I think that you are right .", "Ich denke dass du recht hast .", "0-0 1-1 2-2 3-3 4-5 5-4 6-6")
    made = parse("vtt", film("I think that", "you are right.")).rebuild([answer])
    assert made == film("Ich denke dass", "du recht hast .")


def test_a_note_between_two_cues_of_a_sentence_stays_between_them():
    source = film("I think that", "you are right.").replace("1\n00:01", "NOTE pause\n\n1\n00:01")
    assert upper(parse("vtt", source)) == source.replace("I think that", "I THINK THAT").replace(
        "you are right.", "YOU ARE RIGHT."
    )


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("<b>Hello", ["Hello"]),
        ("Hello</b> there", ["Hello there"]),
        ("R&amp;D &lt;now&gt;&nbsp;", ["R&D <now>"]),
        ("<00:00:00.500>One <00:00:01.000>two", ["One two"]),
        ("<lang en>Hello</lang> <ruby>a<rt>b</rt></ruby>", ["Hello ab"]),
        ("- Hello.\n- Hi.", ["Hello.", "Hi."]),
        ("♪ la la ♪", ["la la"]),
        ("a < b", ["a < b"]),
        ("123", []),
    ],
)
def test_texts(text, texts):
    document = parse("vtt", film(text))
    assert document.texts == texts
    assert document.rebuild(same(document)) == film(text)


def test_a_translation_is_escaped():
    made = parse("vtt", film("Hello there")).rebuild([Said("a --> <b> & c")])
    assert made == film("a --&gt; &lt;b&gt; &amp; c")


def test_text_ends_at_an_arrow_as_in_a_browser():
    source = film("Hello").replace("Hello", "Hello\n00:03.000 --> 00:04.000\nAgain.")
    assert parse("vtt", source).texts == ["Hello", "Again."]


@pytest.mark.parametrize("source", ["Hello", "WEBVTTX\n", "00:01.000 --> 00:02.000\nHello"])
def test_another_file_is_refused(source):
    with pytest.raises(CorpusError, match=r"^film\.vtt:1: not a WebVTT file: the first line must be WEBVTT; add it$"):
        parse("film.vtt", source)


def test_a_file_without_cues_has_no_texts():
    for source in ("", "WEBVTT", "WEBVTT\n\nNOTE nothing\n", "WEBVTT\n\nSTYLE\n::cue { color: red }\n"):
        document = parse("vtt", source)
        assert document.texts == []
        assert document.rebuild([]) == source
