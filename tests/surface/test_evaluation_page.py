"""The evaluation page in a browser: it draws, it asks for nothing, and every control does what it says."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from regard.data.pairs import Languages, Pair
from regard.tasks.translate.evaluate import System, evaluation
from tests.surface.conftest import DESKTOP, PHONE, Show

HOSTILE = "</script><script>window.broken = true</script><img src=x onerror='window.broken = true'>"
WRONG = {3: "", 5: "no no no no no no", 7: HOSTILE}


@functools.cache
def data(pair: bool = True, name: str = "new") -> dict[str, Any]:
    """Thirty sentences of 6 words and ten of 26. "old" has a wrong word in every other one, and worse in a few."""
    pairs = [Pair(f"line {n} of the test set", f"riga {n} della prova") for n in range(1, 31)]
    pairs += [Pair(f"long {n}" + " word" * 24, f"lunga {n}" + " parola" * 24) for n in range(31, 41)]
    pairs[7] = Pair(HOSTILE, pairs[7].target)
    right = [pair.target for pair in pairs]
    right[0] = "riga 1 della prova prima"
    old = [WRONG.get(n, text if n % 2 else text.replace("riga", "fila")) for n, text in enumerate(right)]
    systems = [System.of_texts(name, right, pairs, "it"), System.of_texts("old", old, pairs, "it")]
    return evaluation(
        pairs,
        *systems[: 1 + pair],
        languages=Languages("en", "it"),
        test={"source": "t.en", "target": "t.it"},
        notes=[HOSTILE],
    )


@pytest.fixture
def show(show_page: Show) -> Show:
    """Opens the evaluation of some data."""
    return functools.partial(show_page, "evaluation")


def headings(page: Any) -> list[str]:
    return page.locator("section h2").all_inner_texts()


def sources(page: Any) -> list[str]:
    return page.locator(".line .verse.source").all_inner_texts()


def test_two_systems(show: Show) -> None:
    found = data()
    page = show(found)
    assert headings(page) == ["By length", "Sentence scores", "Sentences", "Flags", "Method"]
    assert page.locator("h1").inner_text() == "new against old"
    assert page.locator(".deck").inner_text() == (
        "40 sentences, English into Italian. new is better than old by BLEU, chrF and TER."
    )
    card = page.get_by_role("article", name="BLEU")
    assert card.locator(".value").all_inner_texts() == [
        f"{found['bleu']:.1f}\nnew",
        f"{found['against']['bleu']:.1f}\nold",
    ]
    assert f"p = {found['differences']['bleu']['p']:.3f}" in card.inner_text()
    assert found["signatures"]["bleu"] in card.inner_text()
    labels = [figure.get_attribute("aria-label") for figure in page.locator("svg[role=img]").all()]
    assert len(labels) == 6  # three cards, lengths, balance, histograms
    assert all(labels)
    better = sum(line["difference"] > 0 for line in found["lines"])
    assert f"new better: {better} sentences" in labels[4]
    flags = page.locator("table.flags tr").all_inner_texts()
    assert "loops\t0\t1\trepeated words" in flags
    assert page.evaluate("window.broken") is None
    assert page.get_by_text(HOSTILE).count() >= 2  # a sentence and a note, as they are


def test_long_names_that_begin_alike_stay_apart(show: Show) -> None:
    first = "a run with a rather long name"
    found = data(name=f"{first} + another")
    page = show(found | {"against": found["against"] | {"name": first}})
    orders = page.get_by_role("combobox", name="sort by").locator("option").all_inner_texts()
    assert {f"{first} + another better by most", f"{first} better by most"} <= set(orders)


def test_one_system(show: Show) -> None:
    page = show(data(pair=False))
    assert headings(page) == ["By length", "Sentence scores", "Sentences", "Method"]
    assert "39 of the translations (98 %) equal the reference exactly." in page.locator(".deck").inner_text()
    assert page.locator(".apart").count() == 0
    assert sources(page)[0] == "line 1 of the test set"  # the worst first
    page.get_by_role("radio", name="different from the reference 1").check()
    assert page.locator(".line .made mark").all_inner_texts() == ["prima"]
    assert page.locator(".line .reference mark").count() == 0


@pytest.mark.parametrize("nothing", [{}, {"lines": [], "metrics": {}, "against": None}])
def test_what_is_missing_is_left_out(show: Show, nothing: dict[str, Any]) -> None:
    assert headings(show(nothing)) == []


def test_bars_by_length_follow_the_metric(show: Show) -> None:
    found = data()
    page = show(found)
    figure = page.locator(".lengths svg")
    for name, label in (("bleu", "BLEU"), ("ter", "TER")):
        page.get_by_role("radio", name=label, exact=True).check()
        first, second = [system["buckets"][1][name] for system in (found, found["against"])]
        assert f"{label} by length" in figure.get_attribute("aria-label")
        assert f"21-30 words {first:.1f} and {second:.1f}" in figure.get_attribute("aria-label")
    assert "30 sentences" in figure.text_content()
    assert page.locator(".lengths .whisker").count() == 2  # ten sentences are too few for an interval


def test_words_that_differ_are_marked(show: Show) -> None:
    page = show(data())
    page.get_by_role("searchbox", name="find").fill("line 3 of")
    assert sources(page) == ["line 3 of the test set"]
    assert page.locator(".made.first mark").count() == 0
    assert page.locator(".made.second mark").all_inner_texts() == ["fila"]
    assert page.locator(".reference .missed-second").all_inner_texts() == ["riga"]
    page.get_by_role("searchbox", name="find").fill("line 4 of")
    assert page.locator(".made.second").inner_text().endswith("nothing")
    assert page.locator(".made.second .flag").all_inner_texts() == ["empty"]
    page.get_by_role("searchbox", name="find").fill("nowhere")
    assert page.get_by_text("No sentence matches.").count() == 1


def test_sentences_can_be_sorted_and_filtered(show: Show) -> None:
    found = data()
    page = show(found)
    gaps = sorted((abs(line["difference"]) for line in found["lines"]), reverse=True)
    assert sources(page)[0] == "line 4 of the test set"  # where the old one says nothing
    assert page.locator(".line").count() == 20
    assert gaps[0] == found["lines"][3]["difference"]
    page.get_by_role("button", name="Show 20 more").click()
    assert page.locator(".line").count() == 40
    assert page.get_by_role("button", name="Show").count() == 0

    page.get_by_role("combobox", name="sort by").select_option(label="order of the test set")
    assert sources(page)[:2] == ["line 1 of the test set", "line 2 of the test set"]
    page.get_by_role("combobox", name="words").select_option(label="21–30")
    assert [text.split()[1] for text in sources(page)] == [str(number) for number in range(31, 41)]
    page.get_by_role("combobox", name="words").select_option(label="any")
    page.get_by_role("radio", name="flagged").check()
    assert page.get_by_role("status").inner_text() == "3 of 3 sentences"
    assert sources(page) == ["line 4 of the test set", "line 6 of the test set", HOSTILE]
    page.get_by_role("radio", name="new better").check()
    assert f"of {sum(line['difference'] > 0 for line in found['lines'])} " in page.get_by_role("status").inner_text()


def test_keyboard(show: Show) -> None:
    page = show(data())
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"
    page.keyboard.type("line 1")
    assert all("line 1" in source for source in sources(page))
    page.locator(".line").first.focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement === document.querySelectorAll('.line')[1]")
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement === [...document.querySelectorAll('.line')].at(-1)")


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("pair", [True, False], ids=["two", "one"])
def test_the_page_never_scrolls_sideways(show: Show, viewport: dict[str, int], pair: bool) -> None:
    page = show(data(pair, "a-run-whose-name-was-made-by-a-machine-2026-11-15T21-30"), viewport=viewport)
    page.wait_for_selector(".lengths svg")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_dark_and_on_paper(show: Show) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    light = show(data()).evaluate(paper)
    page = show(data(), scheme="dark")
    assert page.evaluate(paper) != light
    page = show(data(), scheme="dark", media="print")
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    assert not page.get_by_role("searchbox", name="find").is_visible()
    assert not page.get_by_role("button", name="Show").is_visible()
