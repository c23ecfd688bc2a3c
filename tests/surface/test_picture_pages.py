"""The page of a captioned picture, and the captions in a report, in a browser."""

from __future__ import annotations

from typing import Any

from regard.data.drawings import read_drawings
from regard.data.pictures import to_data_url
from tests.surface.conftest import PHONE, Show

HOSTILE = "</script><script>window.broken=true</script>"
WORDS = ("two", "stars", HOSTILE)
PICTURE = to_data_url(read_drawings("valid")[0].draw())


def spot(row: int, column: int) -> list[list[float]]:
    """Attention to one of 2 x 3 patches."""
    return [[0.9 if (row, column) == (y, x) else 0.02 for x in range(3)] for y in range(2)]


MAPS = [spot(0, 0), spot(1, 2), spot(0, 1)]
"""Of each of the words."""


def placed(*words: str) -> list[dict[str, Any]]:
    """Words of a text with spaces between them."""
    starts = [len(" ".join((*words[:place], ""))) for place in range(len(words))]
    return [{"text": word, "start": start, "end": start + len(word)} for word, start in zip(words, starts, strict=True)]


def look(**changes: Any) -> dict[str, Any]:
    words = [word | {"probability": share} for word, share in zip(placed(*WORDS), (0.5, 0.75, 1), strict=True)]
    other_head = [spot(1, 0)] * 3
    return {
        "text": " ".join(WORDS), "language": "en", "score": -0.25, "words": words, "maps": MAPS,
        "layers": [{"name": "decoder.0.cross", "heads": [MAPS, other_head]}],
    } | changes  # fmt: skip


def inspected(*looks: dict[str, Any]) -> dict[str, Any]:
    return {"title": looks[0]["text"], "run": "test", "model": {"arch": "toy"}, "picture": PICTURE, "looks": [*looks]}


def bright(page: Any, veil: str) -> list[int]:
    """The row and the column of the brightest patch of 2 x 3 under a veil; [] if there is no veil."""
    found = page.locator(veil).evaluate(
        """canvas => {
          if (canvas.hidden) return [];
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          const dark = (row, column) => data[4 * (Math.floor((row + 0.5) * canvas.height / 2) * canvas.width
            + Math.floor((column + 0.5) * canvas.width / 3)) + 3];
          const places = [0, 1].flatMap((row) => [0, 1, 2].map((column) => [row, column]));
          return places.reduce((best, place) => (dark(...place) < dark(...best) ? place : best));
        }"""
    )
    return list(found)


LARGE = ".looking-main .veil"


def test_a_word_shows_where_the_model_looked(show_page: Show) -> None:
    page = show_page("picture", inspected(look()))
    assert page.locator(".deck").inner_text() == "A caption in English, by toy, with the score −0.250."
    assert bright(page, LARGE) == []
    assert [bright(page, f".multiple:nth-child({n}) .veil") for n in (1, 2, 3)] == [[0, 0], [1, 2], [0, 1]]
    page.get_by_role("button", name="stars").hover()
    assert bright(page, LARGE) == [1, 2]
    assert page.locator(".looking .says").inner_text() == (
        "“stars” attends most to row 2, column 3, with weight 0.900. Its probability is 75 %."
    )
    assert page.locator(".multiple.chosen figcaption span").inner_text() == "stars"
    page.locator(".multiple").first.hover()
    assert bright(page, LARGE) == [0, 0]
    page.mouse.move(0, 0)
    assert bright(page, LARGE) == []
    page.locator(".looked-word").first.focus()
    page.keyboard.press("ArrowRight")
    assert bright(page, LARGE) == [1, 2]
    assert page.evaluate("window.broken") is None


def test_a_place_in_the_picture_shows_its_words(show_page: Show) -> None:
    page = show_page("picture", inspected(look()))
    box = page.locator(".looking-main .shaded-picture").bounding_box()
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 0.9 * box["height"])
    strengths = page.locator(".looked-word").evaluate_all(
        "words => words.map((word) => Number(word.style.getPropertyValue('--strength')))"
    )
    assert strengths == [0.022, 1, 0.022]
    assert page.locator(".looking .says").inner_text().startswith("“stars” attends to this place more")


def test_layers_and_heads_can_be_chosen(show_page: Show) -> None:
    page = show_page("picture", inspected(look()))
    page.get_by_label("Layer").select_option("decoder.0.cross")
    assert bright(page, ".multiple:nth-child(2) .veil") in ([1, 2], [1, 0])  # the mean of both heads
    page.get_by_label("head 1").check()
    assert [bright(page, f".multiple:nth-child({n}) .veil") for n in (1, 2, 3)] == [[1, 0]] * 3
    page.get_by_label("head 0").check()
    assert bright(page, ".multiple:nth-child(2) .veil") == [1, 2]


def test_another_caption_can_be_chosen(show_page: Show) -> None:
    other = look(text="a cat", words=placed("a", "cat"), maps=MAPS[1:], score=-2)
    page = show_page("picture", inspected(look(), other))
    page.get_by_role("button", name="a cat").click()
    assert page.locator(".looked-word").all_inner_texts() == ["a", "cat"]
    assert bright(page, ".multiple:nth-child(1) .veil") == [1, 2]


def test_without_attention_the_caption_is_still_shown(show_page: Show) -> None:
    plain = {"text": "a cat", "language": "", "score": -1.0, "words": placed("a", "cat")}
    page = show_page("picture", inspected(plain), viewport=PHONE, scheme="dark")
    assert page.locator(".looked-text").inner_text() == "a cat"
    assert page.locator("button.looked-word, .multiple").count() == 0
    assert "no attention" in page.locator(".margin").first.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    wide = show_page("picture", inspected(look()), viewport=PHONE, scheme="dark")
    assert wide.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_report_has_pictures_with_captions_and_references(show_page: Show) -> None:
    right = look(text="two stars", words=placed("two", "stars"), maps=MAPS[:2])
    captioned = [
        {"picture": PICTURE, "look": right, "references": ["two stars", "a pair of stars"]},
        {"picture": PICTURE, "look": look(), "references": ["a red ring", HOSTILE]},
    ]
    page = show_page("report", {"title": "Captions", "run": "test", "captioned": captioned})
    assert page.locator("section[aria-labelledby=captions] .margin").inner_text().count("1 of the 2 captions") == 1
    assert page.locator(".gallery .same").count() == 1
    assert page.locator(".gallery .reference").all_inner_texts() == ["a red ring", HOSTILE]
    page.locator(".gallery .looked-word", has_text="stars").last.hover()
    assert bright(page, ".gallery > :last-child .veil") == [1, 2]
    assert page.evaluate("window.broken") is None
