"""The time lines of labeled frames, in the report and in an inspection page, in a browser."""

from __future__ import annotations

from typing import Any

from tests.surface.conftest import PHONE, Show

HOSTILE = "</script><script>window.broken = true</script>"


def timelines(**changes: Any) -> dict[str, Any]:
    line = {
        "name": f"walk {HOSTILE}",
        "frames": 10,
        "correct": [["rest", 0, 5], [HOSTILE, 5, 10]],
        "predicted": [["rest", 0, 4], [HOSTILE, 4, 9], ["rest", 9, 10]],
        "right": 0.8,
        "measure": "probability",
        "shares": [0.9, 0.5, 0.8, 0.9, 1.0],
        "curves": [[0.0, 1.0, -1.0, 2.0, 0.5], [0.1, 0.2, 0.3, 0.4, 0.5]],
    }
    return {"labels": ["rest", HOSTILE], "series": [line | changes]}


def inspected(**changes: Any) -> dict[str, Any]:
    segments = [
        {"label": "rest", "start": 0, "end": 4, "probability": 0.9, "influence": [2.0, 0.5]},
        {"label": HOSTILE, "start": 4, "end": 10, "probability": 0.8, "influence": [-0.1, 0.0]},
    ]
    data = {"title": "walk", "run": "test", "tagged": {"segments": segments, "width": 2}, "timelines": timelines()}
    return data | changes


def test_the_time_lines_of_a_report(show_page: Show) -> None:
    page = show_page("report", {"title": "Frames", "run": "test", "timelines": timelines()})
    assert page.locator(".legend li").all_inner_texts() == ["rest", HOSTILE]
    assert page.locator(".timeline .tone rect").count() == 5  # two correct and three predicted segments
    assert page.locator(".mistake").count() == 2  # frames 4 and 9
    assert page.locator(".timeline .signal").count() == 2
    plot = page.locator(".timeline .plot")
    plot.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    said = page.locator(".timeline .says").inner_text()
    assert said == f"Frame 4: correct rest, predicted {HOSTILE}, probability about 80 %."
    page.keyboard.press("End")
    assert page.locator(".timeline .says").inner_text().startswith("Frame 9: ")
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 80, box["y"] + 10)
    assert page.locator(".timeline .says").inner_text().startswith("Frame 0: correct rest, predicted rest")
    assert page.evaluate("window.broken") is None


def test_an_inspected_series(show_page: Show) -> None:
    page = show_page("frames", inspected())
    assert page.locator(".deck").inner_text() == "10 frames of 2 numbers, 2 segments."
    assert page.locator(".segments tbody tr").count() == 2
    assert page.locator(".segments .shaded").all_inner_texts()[0] == "2.00"
    assert page.locator(".attention").count() == 0
    assert page.evaluate("window.broken") is None


def test_without_correct_labels_or_influence_it_still_shows(show_page: Show) -> None:
    data = inspected(timelines=timelines(correct=[], right=None, curves=[], shares=[0.9]))
    for segment in data["tagged"]["segments"]:
        del segment["influence"]
    page = show_page("frames", data, viewport=PHONE, scheme="dark")
    assert page.locator(".timeline .tone rect").count() == 3
    assert page.locator(".mistake").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert show_page("frames", {"tagged": {}}).locator(".timeline").count() == 0
