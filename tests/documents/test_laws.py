"""What holds for every document: nothing is lost, and what is not translated stays byte for byte."""

import re
import time
from collections import Counter
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.documents import parse
from regard.documents.html import read_tokens
from tests.documents.answers import Links, Said, same, shuffled

WORDS = ["the dog", "a", "Über", "l'amico ", " 3.5", "x", "%s", "{name}", "https://a.org/b_c?d=1.", "me@a.org", "。"]
SPACES = [" ", "  ", "\n", "\r\n", "\t", "\n\n", "\u00a0", "\u2028", "\ufeff", "\x0c"]
HTML = [
    "<b>", "</b>", "<i>", "</i>", '<a href="#">', "</a>", "<p>", "</p>", "<br>", "<br/>", "<img alt='a dog'>",
    "<!-- -->", "<!--", "-->", "<!doctype html>", "<![x", "<?", "<", ">", "</", "</>", "<a x='", '"', "'", "&amp;",
    "&nbsp;",
    "&#", "&", "<script>", "</script>", "<pre>", "</pre>", "<code>", "</code>", '<i translate="no">', "<title>",
    "</title>",
    "<td>", "<input value=a title=\"it's\">", "</ 5>", "<é>", "<div\n class=notranslate>", "</div>", "<svg>", "</svg>",
]  # fmt: skip
MARKDOWN = [
    "# ", "## a ##", "- ", "* ", "1. ", "> ", "*", "**", "_", "__", "***", "~~", "`", "``", "```", "~~~", "[", "]",
    "](u)", "][r]", "[r]: /u", "[^1]", "[^1]: ", "![an image](i.png)", "|", "|---|", "---", "+++", "===", "    ",
    "\\", "\\*",
    "  \n", "\\\n", "- [ ] ", "a: b\n", "<b>", "</b>", "<div>", "</div>", "<https://a.org>", "<!-- ", "&copy;",
    "<kbd>x</kbd>",
]  # fmt: skip
SRT = ["1\n", "00:00:01,000 --> 00:00:02,500\n", "00:00:03.5 --> 00:00:04,000 x1:3\n", "<i>", "</i>", "{\\an8}", "- ",
       "...", ".", ", and", "♪"]  # fmt: skip

VTT = ["\nid\n", "\n00:01.000 --> 00:02.500\n", "\n00:00:03.000 --> 01:00:04.000 line:0 align:start\n", "\nNOTE a\n",
       "\nSTYLE\n::cue{}\n", "<i>", "</i>", "<v Ann>", "</v>", "<c.a.b>", "</c>", "<00:00:01.500>", "&amp;", "&", "-->",
       "- ", ".", "♪"]  # fmt: skip


def mixtures(pieces):
    return st.lists(st.sampled_from([*pieces, *WORDS, *SPACES]) | st.text(max_size=4), max_size=25).map("".join)


DOCUMENTS = st.one_of(
    st.tuples(st.just("txt"), mixtures([])),
    st.tuples(st.just("html"), mixtures(HTML)),
    st.tuples(st.just("markdown"), mixtures(MARKDOWN)),
    st.tuples(st.just("srt"), mixtures(SRT).map(lambda text: SRT[1] + text)),
    st.tuples(st.just("vtt"), mixtures(VTT).map(lambda text: f"WEBVTT\n{VTT[1]}{text}")),
)


@given(DOCUMENTS)
@example(("markdown", "a\n1234567890. b\n= c"))
@example(("html", "<a x='<a x='>b"))
@settings(max_examples=400)
def test_untouched_texts_leave_the_document_as_it_was(document):
    kind, source = document
    parsed = parse(kind, source)
    assert parsed.rebuild(same(parsed)) == source
    assert all(text == " ".join(text.split()) and any(map(str.isalpha, text)) for text in parsed.texts)


@given(DOCUMENTS)
def test_failed_translations_leave_the_document_as_it_was(document):
    kind, source = document
    parsed = parse(kind, source)
    assert parsed.rebuild([Said(" ") for _ in parsed.texts]) == source


@given(DOCUMENTS, st.integers(0, 99))
@settings(max_examples=200)
def test_no_word_is_lost_whatever_the_order(document, seed):
    """Every word of every translation is found in the document, but for what gives way to what must stay."""
    kind, source = document
    parsed = parse(kind, source)
    answers = [shuffled(text, seed) for text in parsed.texts]
    made = parsed.rebuild(answers)
    assert isinstance(made, str)
    for answer in answers:
        if answer.alignment:
            for word in re.findall(r"\b(?:THE|DOG|ÜBER|AMICO)\b", answer.text, re.IGNORECASE):
                assert word in unescape(made)


LINKS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=9).map(tuple)
WILD = st.builds(
    Said,
    st.text(st.sampled_from("ab <&>*_-1.\n|`[]%s{x}"), max_size=12),
    st.none() | st.builds(Links, st.just(("a",) * 10), st.just(("b",) * 10), LINKS),
)


@given(DOCUMENTS, st.lists(WILD, min_size=1, max_size=5))
@settings(max_examples=200)
def test_no_answer_makes_it_fail(document, wild):
    kind, source = document
    parsed = parse(kind, source)
    answers = [wild[place % len(wild)] for place in range(len(parsed.texts))]
    assert isinstance(parsed.rebuild(answers), str)
    assert len(parsed.lost(answers)) == len(answers)


@given(DOCUMENTS)
def test_bytes_give_bytes(document):
    kind, source = document
    content = source.encode("utf-8", "replace")
    parsed = parse(kind, content)
    assert parsed.rebuild(same(parsed)) == content
    assert parsed.texts == parse(kind, content.decode()).texts


# ---------------------------------------------------------------------------------------------------------------------
# HTML that is well formed

TEXTS = st.lists(st.sampled_from(["one", "two", "three", "four", "five", ",", "."]), min_size=1, max_size=3).map(
    " ".join
)
INLINE = st.recursive(
    TEXTS | st.sampled_from(["<br>", '<img src="x">', "<!-- note -->", "<code>42</code>", " "]),
    lambda inner: st.tuples(st.sampled_from(["b", "i", "a", "span"]), st.lists(inner, max_size=3)).map(
        lambda made: f"<{made[0]}>{' '.join(made[1])}</{made[0]}>"
    ),
    max_leaves=12,
)
PAGES = st.lists(INLINE, min_size=1, max_size=4).map(lambda parts: f"<p>{' '.join(parts)}</p>")


class Balance(HTMLParser):
    """The standard library's parser as a referee: are all tags closed in order?"""

    def __init__(self):
        super().__init__()
        self.open, self.ok = [], True

    def handle_starttag(self, tag, attrs):
        if tag not in ("br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        self.ok &= bool(self.open) and self.open.pop() == tag


@given(PAGES, st.integers(0, 99))
@settings(max_examples=200)
def test_tags_stay_balanced_and_complete_in_any_order_of_words(page, seed):
    document = parse("html", page)
    made = document.rebuild([shuffled(text, seed) for text in document.texts])
    tags = lambda source: Counter(re.findall(r"<[^>]*>", source))  # noqa: E731
    assert tags(made) == tags(page)
    referee = Balance()
    referee.feed(made)
    assert referee.ok
    assert referee.open == []
    bare = lambda source: Counter(re.sub(r"<!--.*?-->|<[^>]*>", " ", source).upper().split())  # noqa: E731
    glued = lambda counts: Counter("".join(sorted("".join(counts.elements()))))  # noqa: E731
    assert glued(bare(made)) == glued(bare(page))


@given(mixtures(HTML))
@example("<a b='> ' <a b='> ' ")
@settings(max_examples=200)
def test_tokens_are_the_source(source):
    assert "".join(token.raw for token in read_tokens(source)) == source


@given(PAGES)
def test_tokens_agree_with_the_standard_library(page):
    found = []

    class Recorder(HTMLParser):
        def handle_starttag(self, tag, attrs):
            found.append(f"<{tag}>")

        def handle_endtag(self, tag):
            found.append(f"</{tag}>")

    Recorder().feed(page)
    ours = [
        f"</{token.name}>" if token.kind == "close" else f"<{token.name}>" for token in read_tokens(page) if token.name
    ]
    assert ours == found


HOSTILE = {
    "html": ["<a ", "<a b='> ' ", "<!--", "<![CDATA[", "</", "<b>", "<b>x", "<script>", "&#", "<a b=\"",
             "x<br>", "<a>x</a>,"],
    "markdown": ["[", "`", "``a`", "*a ", "![", "](", "<", "|", "> ", "- a\n", "a_b@", "\\", "[a](", "**",
                 "a\n", " \t"],
    "txt": ["a" * 50, "%s a ", "%", "{{", "a@", "https://", "1.", " "],
    "srt": ["1\n", "<i>", "00:00:01,000 --> 00:00:02,500\na\n\n", " ", "{\\"],
    "vtt": ["a\n", "<v a>", "<v ", "<00:", "&#", " ", "\n\n00:01.000 --> 00:02.500\na"],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "piece"), [(kind, piece) for kind, pieces in HOSTILE.items() for piece in pieces])
def test_time_grows_with_the_size_and_no_faster(kind, piece):
    """3,000 of anything, read and put together: a reader that goes back again and again would take minutes."""
    heads = {"vtt": "WEBVTT\n\n00:00:01.000 --> 00:00:02.500\n"}
    source = heads.get(kind, "00:00:01,000 --> 00:00:02,500\n") + piece * 3_000
    start = time.process_time()
    parsed = parse(kind, source)
    assert parsed.rebuild(same(parsed)) == source
    parsed.rebuild([Said(f"a {text}") for text in parsed.texts])
    assert time.process_time() - start < 3
