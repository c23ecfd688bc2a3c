"""The page of a tagged sentence and the report of a tagger, in a browser."""

from __future__ import annotations

from typing import Any

from tests.surface.conftest import PHONE, Show

HOSTILE = "</script><script>window.broken = true</script>"


def inspected(**changes: Any) -> dict[str, Any]:
    tagged = {
        "text": f"He waits {HOSTILE}",
        "tokens": ["He", "waits", HOSTILE],
        "tags": ["B-NP", "B-VP", "O"],
        "probabilities": [0.9, 0.8, 0.7],
        "spans": [
            {"type": "NP", "text": "He", "start": 0, "end": 2, "first": 0, "last": 1, "probability": 0.9},
            {"type": "VP", "text": "waits", "start": 3, "end": 8, "first": 1, "last": 2, "probability": 0.8},
        ],
        "top_labels": [{"B-NP": 0.9, "O": 0.1}, {"B-VP": 0.8, "B-NP": 0.2}, {"O": 0.7, "B-NP": 0.3}],
        "influence": [[2.0, 0.5, -0.1], [1.0, 0.5, 0.0], [0.0, 0.0, 0.3]],
    }
    heads = [[[0.5, 0.3, 0.2]] * 3, [[0.1, 0.1, 0.8]] * 3]
    maps = [{"name": "encoder.0.self", "heads": heads}]
    attention = {"source": tagged["tokens"], "target": tagged["tokens"], "maps": maps}
    return {"title": tagged["text"], "run": "test", "tagged": tagged, "attention": attention} | changes


def test_a_chosen_word_shades_the_others(show_page: Show) -> None:
    page = show_page("tags", inspected())
    assert page.locator(".deck").inner_text() == "NP: He; VP: waits."
    assert page.locator(".tagged-word .tag").all_inner_texts() == ["B-NP", "B-VP", "O"]
    assert page.locator(".probabilities dt").all_inner_texts() == ["O", "B-NP"]  # of the least sure word
    page.get_by_role("button", name="waits").click()
    assert page.locator(".probabilities dt").all_inner_texts() == ["B-VP", "B-NP"]
    strengths = page.locator(".tagged-word .shaded").evaluate_all(
        "marks => marks.map((mark) => Number(mark.style.getPropertyValue('--strength')))"
    )
    assert strengths == [1, 0.5, 0]
    assert page.locator(".attention").count() == 1
    assert page.evaluate("window.broken") is None


def test_without_attention_or_explanation_it_still_shows(show_page: Show) -> None:
    data = inspected(attention=None)
    del data["tagged"]["influence"], data["tagged"]["top_labels"]
    page = show_page("tags", data, viewport=PHONE, scheme="dark")
    assert page.locator(".tagged-word").count() == 3
    assert page.locator(".attention").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert show_page("tags", {"tagged": {"tokens": []}}).locator(".tagged-word").count() == 0


def test_the_report_of_a_tagger(show_page: Show) -> None:
    by_label = {name: {"precision": 0.9, "recall": 0.8, "f1": 0.85, "count": 12} for name in ("NP", "VP")}
    data = {
        "title": "Spans: NP or VP",
        "run": "test",
        "summary": [{"label": "span F1", "value": "85.0%", "note": ""}],
        "steps": [{"step": step, "seconds": step, "loss": 1 / step} for step in range(1, 50)],
        "validations": [{"step": 25, "seconds": 25, "loss": 0.5, "span_f1": 0.85, "accuracy": 0.9, "best": True}],
        "labels": {
            "unit": "spans",
            "counted": "words",
            "names": ["NP", "O", "VP"],
            "confusion": [[8, 2, 0], [0, 10, 0], [0, 0, 5]],
            "by_label": by_label,
            "reliability": [{"confidence": 0.9, "right": 0.8, "answers": 25}],
            "error": 0.1,
        },
        "sides": {"source": "Sentence", "target": "Labels"},
        "samples": [
            {
                "source": "He waits",
                "output": "[NP He ] waits",
                "reference": "[NP He ] [VP waits ]",
                "correct": False,
            }
        ],
        "plan": [],
        "settings": {},
        "card": {"parameters": 1000},
    }
    page = show_page("report", data)
    assert "NP predicted as O: 2, 20 % of its words" in page.locator(".confused.miss title").first.text_content()
    assert page.get_by_role("columnheader", name="spans").count() == 1
    assert page.get_by_text("span F1 0.85").count() >= 1
    assert "temperature" not in page.locator("section[aria-labelledby=calibration]").inner_text()
    assert page.locator(".sample").count() == 1
    assert page.locator(".running-heads").text_content() == "SentenceLabels"
