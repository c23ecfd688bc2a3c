"""The report of a classifier and the page of a document, in a browser."""

from __future__ import annotations

from typing import Any

from tests.surface.conftest import PHONE, Show

HOSTILE = "</script><script>window.broken = true</script><img src=x onerror='window.broken = true'>"


def verdict(text: str = "a lovely film.") -> dict[str, Any]:
    words = [{"text": word, "weight": weight} for word, weight in (("a", 0.1), ("lovely", 0.8), ("film", 0.1))]
    return {
        "text": text,
        "label": "good",
        "probability": 0.9,
        "probabilities": {"bad": 0.1, "good": 0.9},
        "labels": ["good"],
        "truncated_tokens": 12,
        "sentences": [
            {"text": "a lovely film.", "weight": 0.75, "words": words},
            {"text": HOSTILE, "weight": 0.25, "words": [{"text": "script", "weight": 1.0}]},
        ],
    }


def report() -> dict[str, Any]:
    by_label = {name: {"precision": 0.9, "recall": 0.8, "f1": 0.85, "count": 10} for name in ("bad", "good")}
    return {
        "title": "Documents: bad or good",
        "run": "test",
        "summary": [{"label": "accuracy", "value": "90.0%", "note": ""}],
        "steps": [{"step": step, "seconds": step, "loss": 1 / step} for step in range(1, 50)],
        "validations": [{"step": 25, "seconds": 25, "loss": 0.5, "accuracy": 0.9, "f1": 0.89, "best": True}],
        "labels": {
            "names": ["bad", "good"],
            "unit": "documents",
            "counted": "documents",
            "confusion": [[8, 2], [0, 10]],
            "by_label": by_label,
            "reliability": [
                {"confidence": 0.6, "right": 0.5, "answers": 4},
                {"confidence": 0.95, "right": 1.0, "answers": 16},
            ],
            "error": 0.06,
            "temperature": 1.2,
        },
        "words": [{"label": "good", "words": [{"text": "lovely", "weight": 0.5}, {"text": HOSTILE, "weight": 0.1}]}],
        "documents": [verdict() | {"right": ["bad"]}],
        "plan": [],
        "settings": {},
        "card": {"parameters": 1000},
    }


def test_the_report_draws_confusion_calibration_and_documents(show_page: Show) -> None:
    page = show_page("report", report())
    assert page.locator(".confusion .confused").count() == 4
    assert "bad predicted as good: 2" in page.locator(".confused.miss title").first.text_content()
    assert page.locator(".calibration .reliable").count() == 2
    assert page.get_by_text("The most common error: bad predicted as good, 2 times.").is_visible()
    assert page.locator(".label-words .shaded").first.text_content() == "lovely"
    assert page.locator(".verdict .shaded-sentences li").count() == 2
    assert page.get_by_text("12 tokens were not read").is_visible()
    assert page.evaluate("window.broken") is None


def test_heavier_words_are_darker_and_nothing_overflows(show_page: Show) -> None:
    page = show_page("report", report(), viewport=PHONE, scheme="dark")
    strengths = page.locator(".verdict .shaded").evaluate_all(
        "marks => marks.map((mark) => [mark.textContent, Number(mark.style.getPropertyValue('--strength'))])"
    )
    found = dict(map(tuple, strengths))
    assert found["lovely"] == 1
    assert found["a"] < found["lovely"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_page_of_a_document(show_page: Show) -> None:
    page = show_page("document", {"title": "Good", "run": "test", "verdict": verdict()})
    assert page.get_by_text("Classified as good, 90 %.").is_visible()
    assert page.locator("#view .deck .shaded").first.text_content() == "lovely"
    assert page.locator(".probabilities .given dt").text_content() == "good"
    assert page.locator(".sentence-weight").first.text_content() == "75 %"
    assert page.evaluate("window.broken") is None


def test_the_page_of_nothing(show_page: Show) -> None:
    page = show_page("document", {})
    assert page.get_by_text("No label is probable enough.").is_visible()


# ---------------------------------------------------------------------------------------------------------------------
# Pictures

DOT = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


def labeled_picture() -> dict[str, Any]:
    weights = [[0.1, 0.2], [0.3, 0.4]]
    return {
        "picture": HOSTILE,
        "label": "dot",
        "probability": 0.9,
        "probabilities": {"bar": 0.1, "dot": 0.9},
        "labels": ["dot"],
        "patches": {"attention": weights, "rollout": weights},
        "pixels": DOT,
    }


def test_the_page_of_a_picture_follows_the_chosen_patch(show_page: Show) -> None:
    heads = [[[0.25] * 4] * 4, [[0.0, 0.0, 0.0, 1.0]] * 4]
    layers = [{"name": "encoder.0.self", "heads": heads}]
    data = {"title": "Dot", "run": "test", "verdict": labeled_picture(), "size": [8, 8], "layers": layers}
    page = show_page("labeled", data)
    assert page.get_by_text("Classified as dot, 90 %.").is_visible()
    assert page.locator(".patch-panel").count() == 3
    assert page.locator(".patch-head canvas:visible").count() == 2
    says = page.locator(".patch-layers .says")
    assert says.text_content() == "Row 2, column 2 of 2 x 2 patches."
    page.locator(".patch-choice").press("ArrowLeft")
    assert says.text_content() == "Row 2, column 1 of 2 x 2 patches."
    page.locator(".patch-choice").press("ArrowLeft")  # there is no patch to the left
    assert says.text_content() == "Row 2, column 1 of 2 x 2 patches."


def test_the_report_shows_labeled_pictures(show_page: Show) -> None:
    data = report() | {"pictures": [labeled_picture() | {"right": ["dot"]}, labeled_picture() | {"right": ["bar"]}]}
    page = show_page("report", data, viewport=PHONE)
    assert page.locator(".labeled").count() == 2
    assert page.locator(".labeled.wrong small").text_content() == "right: bar"
    assert page.evaluate("window.broken") is None
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_page_of_no_picture(show_page: Show) -> None:
    assert show_page("labeled", {}).get_by_text("No label is probable enough.").is_visible()
