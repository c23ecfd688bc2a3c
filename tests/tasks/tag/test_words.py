"""Text divided as treebanks divide it."""

import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.records import read_conllu
from regard.tasks.tag.words import CLITICS, find_clitics, treebank_words
from regard.text.words import words


def divided(text: str, clitics=CLITICS) -> str:
    return " ".join(word.text for word in treebank_words(text, clitics))


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("It rose 1.8%, to $3,000.50.", "It rose 1.8 % , to $ 3,000.50 ."),
        ("At 10:30 on 2024-01-15, or 1/2/2024.", "At 10:30 on 2024-01-15 , or 1/2/2024 ."),
        ("Mr. Smith and J. Doe left the U.S. at 5 a.m. then.", "Mr. Smith and J. Doe left the U.S. at 5 a.m. then ."),
        ("He sent an e-mail to a.b@example.com.", "He sent an e-mail to a.b@example.com ."),
        ("See (https://example.org/a?b=1,2).", "See ( https://example.org/a?b=1,2 ) ."),
        ("See www.example.org, or example.com!", "See www.example.org , or example.com !"),
        ('"Wait," he said.', '" Wait , " he said .'),
        ("He works at AT&T Corp.", "He works at AT&T Corp ."),
        ("Ford Motor Co. said so.", "Ford Motor Co. said so ."),
        ("U.S.-based firms' long-term debts...", "U.S.-based firms ' long-term debts ..."),
        ("No. 5 in the '90s -- no.", "No. 5 in the '90s -- no ."),
        ("In 1990. Or at 3,", "In 1990 . Or at 3 ,"),
        ("No. I said no.", "No . I said no ."),
        ("Really?! So be it -- ***", "Really ?! So be it -- ***"),
        ("So am I.", "So am I ."),
        ("Plan B.", "Plan B ."),
    ],
)  # fmt: skip
def test_as_treebanks_do(text, right):
    assert divided(text) == right
    assert divided(text, ()) == right


@pytest.mark.parametrize(
    ("text", "parted", "whole"),
    [
        ("He didn't.", "He did n't .", "He didn't ."),
        ("It's Ann's; CAN'T", "It 's Ann 's ; CA N'T", "It's Ann's ; CAN'T"),
        ("They’ll, I'm, we're", "They ’ll , I 'm , we 're", "They’ll , I'm , we're"),
        ("shouldn't've", "should n't 've", "shouldn't've"),
        ("O'Brien at five o'clock", "O'Brien at five o'clock", "O' Brien at five o' clock"),
        ("the U.S.'s", "the U.S. 's", "the U.S.'s"),
        ("mother-in-law's", "mother-in-law 's", "mother-in-law's"),
    ],
)
def test_clitics_are_parted_only_where_asked(text, parted, whole):
    assert divided(text) == parted
    assert divided(text, ()) == whole


def test_only_some_clitics():
    assert divided("Ann's dog didn't", ("'s",)) == "Ann 's dog didn't"


@pytest.mark.parametrize(
    "text", ["L'amico c'è, un po' di pane dell'acqua", "猫は好き。", "क्षेत्र में", "это тест, да", "שלום!"]
)
def test_elsewhere_words_are_the_usual_ones(text):
    assert divided(text, ()) == " ".join(word.text for word in words(text))


def test_numbers_and_addresses_among_other_scripts():
    assert divided("価格は1.8ドル。", ()) == "価格は 1.8 ドル 。"


@settings(deadline=None)
@given(st.text(st.sampled_from("aBn'’t.s-,:/5%$@& U\u0301猫 é\"(İ")), st.sampled_from([(), ("'s",), CLITICS]))
def test_every_character_is_in_one_word_at_its_place(text, clitics):
    found = treebank_words(text, clitics)
    assert all(text[word.start : word.end] == word.text and word.text for word in found)
    assert all(one.end <= other.start for one, other in pairwise(found))
    assert "".join(word.text for word in found) == "".join(text.split())


@pytest.mark.parametrize("clitics", [(), CLITICS])
@pytest.mark.parametrize(
    "unit",
    [
        "1.1-",
        "a'",
        "a-",
        "1:",
        "://",
        "www.",
        "x@y.",
        "猫1.",
        "é.",
        "a+",
        "a.",
        "-",
        "'",
        "n't",
        "'d",
        "1.",
        "11",
        "w@",
        "U.S.",
        "a&",
    ],
)
def test_time_grows_with_the_text(unit, clitics):
    before = time.process_time()
    treebank_words(unit * 20_000, clitics)
    treebank_words("猫" + unit * 20_000, clitics)
    assert time.process_time() - before < 2


def test_clitics_are_learnt_from_words():
    assert find_clitics(Counter({"did": 1, "n't": 3, "'S": 1, "it's": 1, "’ll": 1})) == ("n't", "'ll")
    dutch = Counter({"'s": 3, "foto's": 4, "avonds": 3})
    assert find_clitics(dutch) == ()
    assert find_clitics({}) == ()


def test_close_to_a_treebank():
    """The development part of the English Web Treebank; its words with clitics count as one."""
    path = Path(__file__).parents[4] / "shared" / "data" / "ud_english_ewt" / "dev.conllu.gz"
    if not path.is_file():
        pytest.skip("the English Web Treebank is not here")
    parses = list(read_conllu(path))
    right = {(number, *span) for number, parse in enumerate(parses) for span in parse.spans}

    def f1(divide) -> float:
        found = {(number, word.start, word.end) for number, one in enumerate(parses) for word in divide(one.text)}
        return 2 * len(right & found) / (len(right) + len(found))

    assert f1(treebank_words) > 0.98
    assert f1(words) < 0.94
