"""The page of a comparison in a browser: all sections, the controls, and bad data."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.surface.conftest import DESKTOP, PHONE, Show

HOSTILE = "</script><script>window.broken = true</script>"
NAMES = ("Transformer", "LSTM", "2 Transformers")


def pair(first: int, second: int, **found: Any) -> dict[str, Any]:
    return {"first": NAMES[first], "second": NAMES[second], "metric": "bleu", **found}


def data() -> dict[str, Any]:
    """Three systems: the ensemble is the best, and its difference from the Transformer is not significant."""
    scores = dict(zip(NAMES, (30.0, 20.0, 30.5), strict=True))
    curve = [{"seconds": 60.0 * n, "flops": 1e12 * n, "bleu": 4.0 * n, "chrf": 30.0 + n} for n in range(1, 8)]
    return {
        "title": "A comparison",
        "budget": "15 minutes",
        "seeds": [1, 2],
        "sentences": 100,
        "verdict": "2 Transformers has the highest BLEU.",
        "metrics": {name: {"label": name.upper(), "better": "higher"} for name in ("bleu", "chrf")},
        "signatures": {"bleu": "version:2.6.0", "chrf": "nc:6"},
        "systems": [
            {
                "name": name, "arch": "arch", "ensemble": 2 * (name == NAMES[2]), "finetuned": "",
                "published": "Base" if name == NAMES[0] else "", "stopped": "15 minutes", "parameters": 2e6,
                "memory": None, "seconds": 900.0, "flops": 2.5e14, "step": 1234.0, "tokens": 5.0,
                "curve": [] if name == NAMES[2] else curve, "trend": "rising",
            }
            for name in NAMES
        ],
        "scores": {
            name: {
                "bleu": score, "chrf": 50 - score, "intervals": {"bleu": [score - 1, score + 1], "chrf": None},
                "seeds": {"bleu": [score - 0.5, score + 0.5], "chrf": [1.0]}, "sentences_per_second": 12.0,
            }
            for name, score in scores.items()
        },
        "differences": [
            pair(0, 1, difference=10.0, interval=[9, 11], p=0.001, better=0),
            pair(0, 2, difference=-0.5, interval=[-1, 0.5], p=0.3, better=None),
            pair(1, 2, difference=-10.5, interval=[-12, -9], p=0.001, better=1),
        ],
        "samples": [{"source": "a b", "reference": "c d", "outputs": dict.fromkeys(NAMES, HOSTILE)}],
        "published": [{"name": "Base", "BLEU": 27.3, "FLOPs": 3.3e18}, {"name": HOSTILE, "BLEU": 1}],
        "complexity": [
            {"layer": "recurrent", "operations": "n d²", "operations_exponent": 1.0, "sequential": "n",
             "sequential_exponent": 1.0, "path": "n", "path_exponent": None}
        ],
        "reach": [{"name": "LSTM", "distances": [0, 1, 10, 100], "gradient": [1.0, 0.5, 1e-3, 0.0]}],
    }  # fmt: skip


@pytest.fixture
def show(show_page: Show) -> Show:
    """Opens the page of some data."""
    return functools.partial(show_page, "compare")


def texts(page: Any, where: str) -> list[str]:
    return [text.strip() for text in page.locator(where).all_inner_texts()]


def test_all_sections(show: Show) -> None:
    page = show(data())
    assert texts(page, "section h2") == [
        "Results", "Learning curves", "Pairs", "Published", "Cost of a layer", "Reach", "Sentences", "Method",
    ]  # fmt: skip
    assert "3 systems, 15 minutes of training each, 100 test sentences." in page.locator(".deck").inner_text()
    rows = page.locator("section[aria-labelledby=results] tbody tr")
    assert texts(page, "section[aria-labelledby=results] tbody th") == ["2 Transformers", "Transformer", "LSTM"]
    assert rows.nth(0).inner_text().split("\t")[1:4] == ["30.5", "19.5", "2 million"]
    published = page.locator("section[aria-labelledby=published] tbody tr").nth(0).inner_text()
    assert published.split("\t")[:4] == ["Base", "27.3", "3.3 · 1018", "30.0"]
    assert not page.evaluate("window.broken")


def test_pairs_show_which_differences_are_significant(show: Show) -> None:
    page = show(data())
    cells = page.locator(".pairs tbody td")
    kinds = [cells.nth(n).get_attribute("class") for n in range(9)]
    assert kinds == ["self", "equal", "better", "equal", "self", "better", "worse", "worse", "self"]
    assert cells.nth(2).get_attribute("title") == "2 Transformers − LSTM: +10.5, 95 % interval +9.0 to +12.0, p = 0.001"
    assert texts(page, ".pairs tbody td")[3] == "−0.5"


def test_curves(show: Show) -> None:
    page = show(data())
    chart = page.locator("section[aria-labelledby=curves] .lines")
    assert chart.locator("path.line").count() == 2  # an ensemble has no curve
    assert chart.locator("g.best path.line").count() == 1
    before = chart.locator("path.line").nth(0).get_attribute("d")
    page.get_by_role("radio", name="FLOPs").check(force=True)
    chart.filter(has_text="FLOPs (logarithmic").wait_for()  # the chart is drawn when its width is known
    assert chart.locator("path.line").nth(0).get_attribute("d") != before
    chart.focus()
    page.keyboard.press("ArrowDown")
    assert page.locator(".lines g.here .name").all_text_contents() == ["Transformer"]


def test_other_metric(show: Show) -> None:
    page = show(data())
    figure = page.locator("figure.intervals")
    assert figure.locator("line.whisker").count() == 3
    figure.get_by_role("radio", name="CHRF").check(force=True)
    assert figure.locator("line.whisker").count() == 0  # too few sentences for intervals
    assert "CHRF" in figure.locator("svg").get_attribute("aria-label")


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_fits_the_window(show: Show, size: Any) -> None:
    page = show(data(), size)
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def test_one_system_without_anything_else(show: Show) -> None:
    found = data()
    found |= {"systems": found["systems"][:1], "scores": {NAMES[0]: found["scores"][NAMES[0]]}, "differences": []}
    for name in ("published", "complexity", "reach", "samples"):
        found[name] = []
    page = show(found)
    assert texts(page, "section h2") == ["Results", "Learning curves", "Method"]
