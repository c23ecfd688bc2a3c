"""The report page in a browser: it draws, it asks for nothing, and its controls do what they say."""

from __future__ import annotations

import functools
import math
from itertools import pairwise
from typing import Any

import pytest

from tests.surface.conftest import DESKTOP, PHONE, Show

HOSTILE = "</script><script>window.broken = true</script><img src=x onerror='window.broken = true'>"
LONG = [f"parola{index}" for index in range(40)]


def attention(source: list[str], target: list[str], layers: int, heads: int) -> dict[str, Any]:
    """Maps in which head h of layer l gives the weight 0.5 + l/10 + h/100 to the diagonal and shares out the rest."""

    def row(position: int, peak: float) -> list[float]:
        rest = (1 - peak) / (len(source) - 1)
        return [peak if column == position % len(source) else rest for column in range(len(source))]

    def head(peak: float) -> list[list[float]]:
        return [row(position, peak) for position in range(len(target))]

    maps = [
        {"name": f"decoder.{layer}.cross", "heads": [head(0.5 + layer / 10 + h / 100) for h in range(heads)]}
        for layer in range(layers)
    ]
    return {"source": source, "target": target, "maps": maps}


def run(**changes: Any) -> dict[str, Any]:
    """Every part of a report, small, with holes where a real run may have them."""
    data: dict[str, Any] = {
        "title": "English to Italian",
        "run": "test",
        "created": "2026-11-15T21:30:00+00:00",
        "languages": {"source": "en", "target": "it"},
        "summary": [{"label": "BLEU", "value": "50.0", "note": "nrefs:1|case:mixed"}],
        "steps": [
            {
                "step": step,
                "seconds": step * 0.6,
                "loss": None if step == 40 else 8 * math.exp(-step / 500),
                "rate": 1e-4,
            }
            for step in range(20, 2001, 5)
        ],
        "validations": [
            {"step": 1000, "seconds": 600, "loss": 2.5, "bleu": 41.5, "chrf": 60.0, "best": True},
            {"step": 2000, "seconds": 1200, "loss": 2.6, "bleu": 40.25, "chrf": None, "best": False},
        ],
        "samples": [
            {"source": "I am trendy", "output": "Sono alla moda", "reference": "Sono alla moda", "score": -0.1},
            {
                "source": "The red car",
                "output": "La rossa macchina",
                "reference": "La macchina rossa",
                "score": None,
            },
            {"source": HOSTILE, "output": HOSTILE, "reference": None},
        ],
        "attention": attention(["I", "am", "trendy"], ["Sono", "alla", "moda"], layers=2, heads=2),
        "lengths": {"source": [[1, 3], [12, 30], [60, 1]], "target": [[2, 4], [13, 29]]},
        "score_histogram": [[-1.2, 3], [-1.1, 8], [-0.1, 20]],
        "plan": [{"name": "model.width", "value": "128", "reason": HOSTILE}],
        "settings": {"train": {"seed": 1, "nested": {"list": [1, 2], "empty": []}}, "loose": 3},
        "card": {"parameters": 1234567, "pairs": {"train": 29000, "valid": 500, "test": 1000}},
    }
    return data | changes


@pytest.fixture
def show(show_page: Show) -> Show:
    """Opens the report of some data."""
    return functools.partial(show_page, "report")


def headings(page: Any) -> list[str]:
    return page.locator("h2").all_inner_texts()


def test_whole_report(show: Show) -> None:
    page = show(run())
    expected = ["Learning", "Samples", "Attention", "Lengths and scores", "Plan", "Settings and card"]
    assert headings(page) == expected
    deck = page.locator(".deck").inner_text()
    assert deck == (
        "A model of 1.2 million parameters was trained to turn English into Italian on 29,000 training pairs "
        "in 20 minutes and 2,000 steps. BLEU: 50.0."
    )
    labels = [figure.get_attribute("aria-label") for figure in page.locator("svg[role=img]").all()]
    assert len(labels) == 5  # curve, map, facing sentences, lengths, scores
    assert all(labels)
    assert "The best validation result, BLEU 41.5, was at step 1,000." in labels[0]
    assert page.evaluate("window.broken") is None
    assert page.get_by_text(HOSTILE).count() >= 3  # shown as it is: source, translation, reason


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, []),
        (
            {"title": None, "samples": [], "steps": [], "attention": {}, "lengths": {}, "settings": {}, "card": None},
            [],
        ),
        ({"steps": [{"step": 1, "loss": None}], "validations": [{"step": None, "loss": 1.0}]}, ["Learning"]),
        ({"samples": [{"source": "ja", "output": "yes"}]}, ["Samples"]),
        ({"score_histogram": [[-0.5, 1]], "lengths": {"target": [[3, 2]]}}, ["Lengths and scores"]),
    ],
)
def test_what_is_missing_is_left_out(show: Show, data: dict[str, Any], expected: list[str]) -> None:
    page = show(data)
    assert headings(page) == expected
    assert page.get_by_text("Nothing has been recorded").count() == (not expected)


def test_experts_show_their_load(show: Show) -> None:
    layers = {
        "encoder.1.experts": {"importance": [0.4, 0.6], "load": [0.25, 0.75], "dropped": 0.125},
        "decoder.1.experts": {"load": [0.5, 0.5]},
        "other": {"share": 0.5},
    }
    page = show({"card": {"layers": layers}})
    assert headings(page) == ["Experts", "Settings and card"]
    labels = [figure.get_attribute("aria-label") for figure in page.locator("svg[role=img]").all()]
    assert labels == [
        "encoder.1.experts: load 25.0 %, 75.0 %; 12.5 % dropped",
        "decoder.1.experts: load 50.0 %, 50.0 %; 0.0 % dropped",
    ]
    assert page.locator("figure rect").count() == 4
    said = page.locator(".margin p").first.inner_text()
    assert "the least busy expert had 0.50 times, the busiest 1.50 times as much" in said


def test_theme_button_turns_the_page_and_is_remembered(show: Show) -> None:
    page = show(run(), scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(paper)
    page.get_by_role("button", name="Light colours").click()
    light = page.evaluate(paper)
    assert light != dark
    page.reload()
    assert page.evaluate(paper) == light
    page.get_by_role("button", name="Dark colours").click()
    assert page.evaluate(paper) == dark


def test_learning_curve_axis_and_crosshair(show: Show) -> None:
    page = show(run())
    curve, readout = page.locator(".curve svg"), page.locator(".readout")
    assert "best: step 1,000" in curve.text_content()
    assert "2,000steps" in curve.text_content()
    assert "41.5" in readout.inner_text()
    page.get_by_role("radio", name="minutes").check()
    assert "20minutes" in curve.text_content()

    page.get_by_role("group", name="Learning curve").focus()
    page.keyboard.press("End")
    assert "40.3" in readout.inner_text()  # 40.25, the last validation
    page.keyboard.press("Home")
    assert readout.locator("dd").first.inner_text() == "25"  # stands for updates 20 and 25
    box = page.locator(".curve .plot").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 100)
    assert readout.locator("dd").first.inner_text() not in ("25", "2,000")
    assert len(page.locator(".series.training .line").get_attribute("d").split("L")) <= 300  # of 397 updates


def test_samples_filter_and_marks(show: Show) -> None:
    page = show(run())
    assert page.locator(".sample").count() == 3
    page.get_by_role("radio", name="differing only").check()
    assert page.locator(".sample .verse.source").all_inner_texts() == ["The red car"]
    assert page.locator(".sample mark").all_inner_texts() == ["rossa", "rossa"]  # "macchina" is common, in order
    page.get_by_role("radio", name="all 3").check()
    assert page.locator(".sample").count() == 3


def test_many_samples_come_in_two_parts(show: Show) -> None:
    page = show({"samples": [{"source": f"s{index}", "output": "t"} for index in range(15)]})
    assert page.locator(".sample").count() == 10
    page.get_by_role("button", name="Show 5 more").click()
    assert page.locator(".sample").count() == 15


def test_words_are_found_without_spaces(show: Show) -> None:
    page = show({})
    difference = """([one, other, language]) => {
        const [a, b] = [$common_differences.words(one, language), $common_differences.words(other, language)];
        const [left, right] = $common_differences.differences(a, b);
        const texts = (list, isDifferent) => list.filter((_, i) => isDifferent[i]).map((word) => word.text);
        return [texts(a, left), texts(b, right)];
    }"""
    assert page.evaluate(difference, ["a b c", "a c d", "en"]) == [["b"], ["d"]]
    assert page.evaluate(difference, ["", "a", ""]) == [[], ["a"]]
    assert page.evaluate(difference, ["今天很好", "明天很好", "zh"]) == [["今天"], ["明天"]]


def test_attention_layer_head_and_cursor(show: Show) -> None:
    page = show(run())
    figure, says = page.locator(".map"), page.locator(".says")
    assert "decoder.1.cross, average of 2 heads" in figure.get_attribute("aria-label")
    page.get_by_role("group", name="Attention weights").focus()
    page.keyboard.press("ArrowDown")
    # Layer 1: heads give 0.6 and 0.61 to the diagonal.
    assert says.inner_text() == "“Sono” attends to “I” with weight 0.605."
    page.get_by_role("radio", name="head 1").check()
    assert "decoder.1.cross, head 1" in figure.get_attribute("aria-label")
    page.get_by_label("Layer").select_option("decoder.0.cross")
    assert "decoder.0.cross, average of 2 heads" in figure.get_attribute("aria-label")
    page.get_by_role("radio", name="head 1").check()

    page.locator(".map .word.target").nth(2).hover()
    assert says.inner_text() == "“moda” attends most to “trendy”, with weight 0.510."
    assert page.locator(".map .line-box").count() == 1
    assert page.locator(".facing .link:not(.dim)").count() == 3
    page.locator(".facing .word.source").nth(1).hover()
    assert says.inner_text() == "“am” receives its largest weight from “alla”: 0.510."
    ground = page.locator(".map .ground").bounding_box()
    page.mouse.move(ground["x"] + ground["width"] * 0.9, ground["y"] + 5)
    assert says.inner_text() == "“Sono” attends to “trendy” with weight 0.245."  # (1 - 0.51) / 2


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("words", [["a", "longest-word-of-all", "c"], LONG], ids=["short", "long"])
def test_words_of_the_map_never_overlap_and_the_page_never_scrolls_sideways(
    show: Show, viewport: dict[str, int], words: list[str]
) -> None:
    page = show(run(attention=attention(words, words, layers=1, heads=1)), viewport=viewport)
    page.wait_for_selector(".map")
    labels = page.locator(".map .word.source").evaluate_all(
        "nodes => nodes.map((node) => ({ size: Number(node.getAttribute('font-size')),"
        " moved: node.getAttribute('transform').match(/-?[0-9.]+/g).map(Number) }))"
    )
    assert len(labels) == len(words)
    for one, other in pairwise(labels):
        apart = (other["moved"][0] - one["moved"][0]) * abs(math.sin(math.radians(one["moved"][2])))
        assert apart >= one["size"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.get_by_role("combobox").count() == 0  # one layer: nothing to choose
