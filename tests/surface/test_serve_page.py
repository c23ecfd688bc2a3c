"""The page of `regard serve` in a browser: every view does what it says, to everyone, and asks no other host."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.surface.conftest import DESKTOP

pytest.importorskip("fastapi", reason="the server's packages are not installed")

from regard.data.drawings import read_drawings
from regard.data.pictures import read_size, to_png
from regard.pages import resolve
from regard.server.page import POLICY, read_assets
from regard.text.words import ABBREVIATIONS, split_sentences
from tests.surface import serving
from tests.surface.pretend_server import EXAMPLES, MODELS, Pretender, running

PHONE = {"width": 360, "height": 740}
EVERY = tuple(MODELS)
HOSTILE = "<script>window.broken=true</script><img src=x onerror='window.broken=true'>"
VIEWS = ("translate", "inside", "chat", "classify", "pictures", "tag", "caption")

Open = Callable[..., Any]


class Site:
    """A pretended server and its address."""

    def __init__(self, pretender: Pretender, address: str):
        self.pretender, self.address = pretender, address

    def asked(self, route: str) -> list[dict[str, Any]]:
        return [body for name, body in self.pretender.asked if name == route]


@pytest.fixture(scope="module")
def pretended() -> Iterator[Site]:
    """One server for all tests: the browser keeps what it has loaded from it."""
    pretender = Pretender(EVERY)
    with running(pretender.app()) as address:
        yield Site(pretender, address)


@pytest.fixture
def serve(pretended: Site) -> Callable[..., Site]:
    """A server that has been asked nothing, and serves these runs."""

    def start(*served: str, key: str = "") -> Site:
        pretended.pretender.reset(served or EVERY, key)
        return pretended

    return start


@pytest.fixture
def visit(browser_page: Any) -> Iterator[Open]:
    """Opens an address; at the end, whatever the page complained of or asked of other hosts is a failure."""
    page = browser_page
    home, trouble, allowed = [""], [], []
    listeners = {
        "console": lambda message: trouble.append(f"console: {message.text}"),
        "pageerror": lambda error: trouble.append(f"error: {error}"),
        "request": lambda asked: asked.url.startswith(home[0]) or trouble.append(f"request: {asked.url}"),
    }
    for event, listener in listeners.items():
        page.on(event, listener)

    def go(
        site: Site, where: str = "", viewport: dict[str, int] = DESKTOP, scheme: str = "light", allow: str = ""
    ) -> Any:
        home[0] = site.address
        allowed.extend([allow] if allow else [])
        page.set_viewport_size(viewport)
        page.emulate_media(color_scheme=scheme, media="screen", reduced_motion="no-preference")
        page.goto("about:blank")
        page.goto(f"{site.address}/{where}")
        page.locator(".view, .notice, .nothing").first.wait_for()
        return page

    home[0] = "about:blank"
    yield go
    page.evaluate("localStorage.clear(); sessionStorage.clear()")
    for event, listener in listeners.items():
        page.remove_listener(event, listener)
    page.goto("about:blank")
    page.emulate_media(color_scheme=None, media=None, reduced_motion=None)
    assert [entry for entry in trouble if not any(re.search(pattern, entry) for pattern in allowed)] == []


def test_everything_that_is_named_is_served() -> None:
    assets = read_assets()
    page = assets["/"].body.decode()
    named = re.findall(r'(?:href|src)="(page/[^"]+)"', page)
    for address, asset in assets.items():
        if address.endswith(".js"):
            found = re.findall(r'(?:from |import\()"(\.[./a-z]+\.js)"', asset.body.decode())
            named += [resolve(address, path).removeprefix("/") for path in found]
    assert len(named) > 60
    assert {f"/{name}" for name in named} <= assets.keys()


def test_what_the_first_view_needs_is_asked_for_at_once() -> None:
    """Or else a browser finds one module by reading the other, and each takes a journey to the server and back."""
    assets, needed, left = read_assets(), set(), ["main.js", "translate/view.js"]
    while left:
        name = left.pop()
        needed.add(name)
        found = re.findall(r'from "(\.[./a-z]+\.js)"', assets[f"/page/{name}"].body.decode())
        left += [other for path in found if (other := resolve(name, path)) not in needed]
    page = assets["/"].body.decode()
    assert set(re.findall(r'<link rel="modulepreload" href="page/([^"]+)">', page)) == needed - {"main.js"}


def test_the_policy_allows_nothing_inline() -> None:
    assert "unsafe" not in POLICY
    page = read_assets()["/"].body.decode()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]* src=)|https?:", page)


def test_an_asset_that_is_known_already_is_not_sent_again(serve: Callable[..., Site]) -> None:
    httpx = pytest.importorskip("httpx")
    address = f"{serve().address}/page/main.js"
    first = httpx.get(address)
    assert first.headers["content-type"] == "text/javascript; charset=utf-8"
    assert httpx.get(address, headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    assert httpx.get(f"{serve().address}/page/..%2f__init__.py").status_code == 404


def write(page: Any, text: str) -> None:
    page.get_by_role("textbox", name="Text to translate").fill(text)


def written(page: Any) -> str:
    return page.locator(".output .running").evaluate("node => node.textContent")


def expect_written(page: Any, text: str) -> None:
    page.wait_for_function(
        "text => document.querySelector('.output .running')?.textContent === text"
        " && !document.querySelector('.output .stale')",
        arg=text,
    )


def lit(page: Any) -> list[str]:
    """The words of the source that are lit."""
    return page.evaluate("Array.from(CSS.highlights.get('counterpart') ?? [], String)")


def middle_of(page: Any, word: str) -> tuple[float, float]:
    """Where a word of the source stands on the screen."""
    return tuple(
        page.evaluate(
            """word => {
              const text = document.querySelector('.folio .copy').firstChild;
              const range = new Range();
              range.setStart(text, text.data.indexOf(word));
              range.setEnd(text, text.data.indexOf(word) + word.length);
              const { left, top, width, height } = range.getBoundingClientRect();
              return [left + width / 2, top + height / 2];
            }""",
            word,
        )
    )


# ---------------------------------------------------------------------------------------------------------------------
# Translate


def test_translates_while_typing(serve: Callable[..., Site], visit: Open) -> None:
    site = serve()
    page = visit(site)
    assert page.title() == "Translate · Regard"
    assert page.locator(".folio .tag").all_inner_texts() == ["ENGLISH", "ITALIAN"]
    page.get_by_role("textbox", name="Text to translate").press_sequentially("the cat sleeps", delay=30)
    expect_written(page, "THE CAT SLEEPS")
    assert page.locator(".count").inner_text() == "14 / 2,000"
    assert [body["q"] for body in site.asked("translate")][-1] == ["the cat sleeps"]
    assert len(site.asked("translate")) < len("the cat sleeps"), "it waits for a pause before it asks"


def test_lines_stay_lines_and_known_sentences_are_not_asked_for_again(serve: Callable[..., Site], visit: Open) -> None:
    site = serve()
    page = visit(site)
    write(page, "One cat.  Two cats.\n\n  Three cats.\n")
    expect_written(page, "ONE CAT.  TWO CATS.\n\n  THREE CATS.")
    before = len(site.asked("translate"))
    assert [text for body in site.asked("translate")[:2] for text in body["q"]] == [
        "One cat.",
        "Two cats.",
        "Three cats.",
    ]
    write(page, "One cat. Four cats.")
    expect_written(page, "ONE CAT. FOUR CATS.")
    assert [body["q"] for body in site.asked("translate")[before:] if body["nbest"] == 1] == [["Four cats."]]


def test_a_long_text_comes_sentence_by_sentence(serve: Callable[..., Site], visit: Open) -> None:
    site = serve()
    page = visit(site)
    text = " ".join(f"Cat {number} sleeps." for number in range(40))
    write(page, text)
    expect_written(page, text.upper())
    sizes = [len(body["q"]) for body in site.asked("translate") if body["nbest"] == 1]
    assert sizes == [2, 4, 8, 16, 10]
    assert page.locator(".folio.long").count() == 1


def test_the_page_cuts_where_the_server_does(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve())
    texts = [
        "Am 3. Mai kam Dr. Müller. Er blieb bis zum II. Weltkrieg, vom 4. bis 5. Juni. Seite 3. Dann ab.",
        "No. 5 is alive, see Fig. 3. I am 12. It was 1990. No. I don't! J.-P. Sartre… “Mr. Rossi” (U.S. Army).",
        "Это дом, т. е. жильё. Он там. მე აქ ვარ. ის იქ არის. 네. 나도. ½. A",
        "मैं यहाँ हूँ। वह है।तुम. ५ هل أنت هنا؟ نعم. ہاں۔ میں 「はい。」と。次！三",
        *(f"We met {word}. Smith" for word in ABBREVIATIONS.split()),
    ]
    split = "async texts => { const { split } = await import('/page/translate/segments.js');"
    found = page.evaluate(f"{split} return texts.map((text) => split(text).map((one) => one.text)); }}", texts)
    assert found == [split_sentences(text) for text in texts]


def test_pointing_at_a_word_lights_its_counterpart(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve())
    write(page, "The cat sleeps. A dog barks.")
    expect_written(page, "THE CAT SLEEPS. A DOG BARKS.")
    page.locator(".output .bit", has_text="DOG").hover()
    assert lit(page) == ["dog"]
    assert page.locator(".says").inner_text() == "“DOG” translates “dog”. Probability: 95\u00a0%."
    page.mouse.move(*middle_of(page, "sleeps"))
    page.locator(".output .linked").wait_for()
    assert page.locator(".output .linked").all_inner_texts() == ["SLEEPS"]
    assert page.locator(".says").inner_text() == "“sleeps” is translated by “SLEEPS”."
    page.locator(".colophon").hover()
    page.wait_for_function("() => !document.querySelector('.linked')")
    assert lit(page) == []


def test_words_can_be_reached_by_keyboard(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve())
    write(page, "the cat sleeps")
    expect_written(page, "THE CAT SLEEPS")
    field = page.get_by_role("textbox", name="Text to translate")
    field.press("Home")
    assert page.locator(".says").inner_text().startswith("“the” is translated by “THE”")
    page.locator(".output .bit").first.focus()
    page.keyboard.press("ArrowRight")
    assert lit(page) == ["cat"]
    page.keyboard.press("End")
    assert lit(page) == ["sleeps"]


def test_the_copy_breaks_its_lines_where_the_field_does(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve())
    write(page, "The quick brown fox jumps over a lazy dog, Tom. " * 12 + "\n\nEnd\n")
    heights = page.locator(".folio .paper").first.evaluate(
        "paper => [paper.querySelector('.copy').offsetHeight, paper.querySelector('textarea').scrollHeight]"
    )
    assert heights[0] == pytest.approx(heights[1], abs=2)


def test_doubt_is_shaded(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve())
    write(page, "the xylophone")
    expect_written(page, "THE XYLOPHONE")
    shades = "nodes => nodes.map((node) => Number(node.style.getPropertyValue('--share')))"
    assert page.locator(".output .bit").evaluate_all(shades) == pytest.approx(
        [0, 1 - 0.2 / 0.8], abs=0.001
    )  # from 0.8 on a word counts as sure
    page.get_by_role("checkbox", name="Uncertainty").uncheck()
    assert page.locator(".output .bit").evaluate_all(shades) == [0, 0]
    page.reload()
    assert not page.locator(".doubt input").is_checked(), "the choice is remembered"


def test_other_ways_to_say_the_sentence_at_the_caret(serve: Callable[..., Site], visit: Open) -> None:
    site = serve()
    page = visit(site)
    write(page, "The cat sleeps. A dog barks")
    expect_written(page, "THE CAT SLEEPS. A DOG BARKS")
    ways = page.locator(".way")
    page.wait_for_function("() => document.querySelectorAll('.way').length === 5")
    assert ways.nth(1).locator(".way-text").inner_text() == "A DOG BARKS BARKS"
    assert ways.nth(1).locator("mark").inner_text() == "BARKS"
    assert ways.first.get_attribute("aria-pressed") == "true"
    ways.nth(1).click()
    expect_written(page, "THE CAT SLEEPS. A DOG BARKS BARKS")
    assert page.locator(".way[aria-pressed=true] .way-text").inner_text() == "A DOG BARKS BARKS"
    page.locator(".output .bit").first.click()
    page.get_by_text("For “The cat sleeps.”").wait_for()
    assert [body["q"] for body in site.asked("translate") if body["nbest"] == 5] == [
        ["A dog barks"],
        ["The cat sleeps."],
    ]


def test_what_is_suspicious_is_told_in_plain_words(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve())
    write(page, "again and again")
    expect_written(page, "AGAIN AND AGAIN")
    assert page.locator(".flag.doubtful").inner_text() == "The output repeats itself."


def test_a_script_tag_typed_as_text_shows_as_text(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve())
    write(page, HOSTILE)
    expect_written(page, HOSTILE.upper())
    page.wait_for_function("() => document.querySelectorAll('.way').length === 5")
    page.get_by_role("button", name="Look inside").click()
    page.locator(".opening").wait_for()
    assert page.locator("h1").inner_text() == HOSTILE
    page.get_by_role("link", name="Chat").click()
    page.get_by_role("textbox", name="Your message").fill(HOSTILE)
    page.keyboard.press("Enter")
    page.get_by_text(f"You said: {HOSTILE} (1)").wait_for()
    page.get_by_role("link", name="Classify", exact=True).click()
    page.get_by_role("textbox", name="Text to classify").fill(HOSTILE)
    page.locator(".shaded-sentences").wait_for()
    assert page.evaluate("window.broken") is None


PICTURE = to_png(read_drawings("valid")[0].draw())


def choose_picture(page: Any, content: bytes = PICTURE, name: str = "stars.png", what: str = "describe") -> None:
    page.get_by_label(f"Picture to {what}").set_input_files({"name": name, "mimeType": "image/png", "buffer": content})


def test_a_chosen_picture_is_classified(serve: Callable[..., Site], visit: Open) -> None:
    site = serve()
    page = visit(site, "#pictures")
    choose_picture(page, what="classify")
    page.locator(".patch-panel").first.wait_for()
    assert page.locator(".running.label").inner_text() == "star"
    assert page.locator(".patch-panel").count() == 3
    url = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"
    assert site.asked("classify") == [{"model": "shapes", "pictures": url, "explain": True}]
    page = visit(site, "#classify")  # models that read pictures cannot be chosen there
    page.get_by_role("textbox", name="Text to classify").wait_for()
    assert page.get_by_text("shapes").count() == 0


def test_a_chosen_picture_is_described(serve: Callable[..., Site], visit: Open) -> None:
    site = serve()
    page = visit(site, "#caption")
    choose_picture(page)
    page.locator(".looked-text").wait_for()
    assert page.locator(".looked-text").inner_text() == "two stars"
    asked = {"model": "painter", "nbest": 2, "language": "en", "look": True}
    url = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"
    assert site.asked("caption") == [asked | {"pictures": url}]
    assert page.locator(".other-captions li span").all_inner_texts() == ["three stars"]
    page.get_by_role("button", name="stars").hover()
    assert page.locator(".looking .says").inner_text().startswith("“stars” attends most to row 2, column 2")
    assert page.locator(".looking-main .veil").is_visible()
    page.get_by_label("Language").select_option("Italian")
    page.get_by_text("due stelle", exact=True).wait_for()
    page.get_by_role("link", name="Chat").click()
    page.get_by_role("link", name="Caption").click()
    assert page.locator(".picked").get_attribute("src") == url  # the picture is still there


def test_a_picture_is_pasted_dropped_and_made_smaller(serve: Callable[..., Site], visit: Open) -> None:
    site = serve()
    page = visit(site, "#caption", allow="400")
    sent = """async ([kind, content]) => {
      const file = new File([Uint8Array.from(content)], "a.png", { type: "image/png" });
      const data = new DataTransfer();
      data.items.add(file);
      const event = kind === "paste" ? new ClipboardEvent("paste", { clipboardData: data, bubbles: true })
        : new DragEvent("drop", { dataTransfer: data, bubbles: true });
      (kind === "paste" ? document.body : document.querySelector(".picker")).dispatchEvent(event);
    }"""
    for number, kind in enumerate(("paste", "drop"), 1):
        page.evaluate(sent, [kind, list(PICTURE)])
        page.wait_for_function("() => document.querySelector('.finding:not(.stale) .looked-text')")
        assert len(site.asked("caption")) == number
    choose_picture(page, to_png(read_drawings("valid")[0].draw(1500)))
    page.get_by_text("Pictures: not a picture in a known format (PNG); convert it.").wait_for()  # it became a JPEG
    large = base64.b64decode(site.asked("caption")[-1]["pictures"].partition(",")[2])
    assert read_size(large, "") == (1024, 1024)


def test_what_is_no_picture_is_refused_by_the_server(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve(), "#caption", allow="400")
    choose_picture(page)
    page.locator(".multiples").wait_for()
    choose_picture(page, b"no picture", "a.txt")
    page.locator(".notice").wait_for()
    assert page.locator(".multiples").count() == 0  # the caption of the other picture is gone
    assert page.locator(".picked").is_hidden()
    assert page.get_by_text("a.txt", exact=True).is_visible()


def test_a_busy_server_is_asked_again(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve(), allow="429")
    write(page, "busy")
    page.get_by_text("The server is busy. Trying again in 1 s.").wait_for()
    expect_written(page, "BUSY")
    assert page.locator(".notice").is_hidden()


def test_a_text_that_is_too_long_is_not_sent(serve: Callable[..., Site], visit: Open) -> None:
    site = serve()
    page = visit(site)
    write(page, "a" * 2003)
    assert page.locator(".notice").inner_text() == "The text is 3 characters too long."
    assert page.locator(".count.over").inner_text() == "2,003 / 2,000"
    page.wait_for_timeout(600)
    assert site.asked("translate") == []


def test_a_server_that_is_gone(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve(), allow="net::ERR_FAILED")
    page.route("**/v1/translate", lambda route: route.abort())
    write(page, "the cat")
    page.get_by_text("The server cannot be reached.").wait_for()
    page.unroute("**/v1/translate")
    page.get_by_role("button", name="Try again").click()
    expect_written(page, "THE CAT")


def test_a_server_that_asks_for_a_key(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve(key="rg-secret"), allow="401")
    write(page, "the cat")
    page.get_by_label("API key").fill("rg-secret")
    page.get_by_role("button", name="Use it").click()
    expect_written(page, "THE CAT")


def test_languages_are_swapped_where_both_directions_are_served(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve())
    write(page, "the cat")
    expect_written(page, "THE CAT")
    page.get_by_role("button", name="Swap the languages").click()
    assert page.get_by_role("textbox", name="Text to translate").input_value() == "THE CAT"
    assert page.locator(".folio .tag").all_inner_texts() == ["ITALIAN", "ENGLISH"]
    page.get_by_label("Direction").select_option("en-it")
    assert page.locator(".folio .tag").all_inner_texts() == ["ENGLISH", "ITALIAN"]


def test_an_only_direction_needs_no_choice(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve("en-it"))
    assert page.get_by_label("Direction").count() == 0
    assert page.get_by_role("button", name="Swap the languages").count() == 0
    assert page.get_by_role("navigation").get_by_role("link").all_inner_texts() == ["Translate", "Look inside"]


def test_the_first_visit_begins_with_examples(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve())
    assert page.locator(".example").all_inner_texts() == EXAMPLES
    page.get_by_role("button", name="Got it").click()
    page.locator(".example").first.click()
    expect_written(page, "THE CAT SLEEPS")
    assert page.locator(".welcome").is_hidden()
    page.get_by_role("button", name="Clear").click()
    assert page.locator(".example").first.is_visible()
    page.reload()
    page.locator(".example").first.wait_for()
    assert page.get_by_role("button", name="Got it").count() == 0


def test_copying(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve())
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    write(page, "the cat")
    expect_written(page, "THE CAT")
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "THE CAT"


def test_text_from_right_to_left(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve())
    write(page, "שלום עולם")
    expect_written(page, "שלום עולם")
    first, last = (page.locator(".output .bit").nth(place).bounding_box() for place in (0, 1))
    assert first["x"] > last["x"]


# ---------------------------------------------------------------------------------------------------------------------
# Look inside


def test_a_head_is_switched_off_and_on(serve: Callable[..., Site], visit: Open) -> None:
    site = serve()
    page = visit(site)
    write(page, "I take a shower.")
    page.get_by_role("button", name="Look inside").click()
    page.locator(".opening").wait_for()
    assert "Every head" in page.locator("h2").all_inner_texts()
    switch = page.get_by_role("switch", name="decoder.1.cross, head 1")
    switch.focus()
    page.keyboard.press("Space")
    slip = page.get_by_role("region", name="Changes caused by the disabled heads")
    slip.get_by_text("1 word changed. Log-probability −1.50 before, −3.50 now.").wait_for()
    assert site.asked("inspect")[-1]["disabled_heads"] == [["decoder.1.cross", 1]]
    assert slip.locator(".before mark").inner_text() == "la"
    assert slip.locator(".after mark").inner_text() == "una"
    assert switch.get_attribute("aria-checked") == "false"
    assert page.evaluate("document.activeElement.dataset.switch") == "decoder.1.cross:1", "the keyboard keeps its place"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    slip.get_by_text("without 2 heads").wait_for()
    slip.get_by_role("button", name="Switch on decoder.1.cross head 1").click()
    slip.get_by_text("without 1 head", exact=True).wait_for()
    slip.get_by_role("button", name="Switch all on").click()
    slip.wait_for(state="hidden")
    assert site.asked("inspect")[0]["disabled_heads"] == []
    assert switch.get_attribute("aria-checked") == "true"


def test_the_head_that_is_seen_large_has_a_switch(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve(), "#inside?text=I+take+a+shower.")
    page.get_by_role("button", name="encoder.1.self, head 1; positional").click()
    page.get_by_role("button", name="Switch head 1 off").click()
    page.get_by_role("button", name="Switch head 1 on").wait_for()
    assert "encoder.1.self, head 1" in page.locator(".look .map").get_attribute("aria-label"), "choices are kept"


def test_the_address_tells_what_is_seen_and_is_not_sent(serve: Callable[..., Site], visit: Open) -> None:
    site = serve()
    urls: list[str] = []
    page = visit(site)
    page.on("request", lambda asked: urls.append(asked.url))
    page.get_by_role("link", name="Look inside").click()
    page.get_by_role("textbox", name="Sentence to inspect").fill("a secret sentence")
    page.get_by_role("switch", name="encoder.0.self, head 0").click()
    page.locator(".slip .after").wait_for()
    page.wait_for_function("() => location.hash.includes('secret') && location.hash.includes('off=')")
    page.reload()
    page.locator(".slip .after").wait_for()
    assert page.get_by_role("textbox", name="Sentence to inspect").input_value() == "a secret sentence"
    assert site.asked("inspect")[-1]["disabled_heads"] == [["encoder.0.self", 0]]
    assert not any("secret" in url.partition("#")[0] for url in urls)


def test_a_head_that_is_not_there_can_be_given_up(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve(), "#inside?text=I+take+a+shower.&off=decoder.9.cross:1", allow="400")
    page.get_by_text('has no attention layer named "decoder.9.cross"').wait_for()
    page.get_by_role("button", name="Switch all on").click()
    page.locator(".opening").wait_for()
    assert page.locator(".notice, .slip").filter(visible=True).count() == 0


def test_what_takes_longer_is_asked_for(serve: Callable[..., Site], visit: Open) -> None:
    site = serve()
    page = visit(site, "#inside?text=I+take+a+shower.")
    page.get_by_role("button", name="Compute attributions (a few seconds)").click()
    page.locator(".credit").wait_for()
    assert [body["skip_slow"] for body in site.asked("inspect")] == [True, False]


# ---------------------------------------------------------------------------------------------------------------------
# Chat, classify


def test_a_knowledge_base_says_what_it_is(
    serve: Callable[..., Site], visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {"arch": "bm25", "parameters": 0, "facts": {"questions": 17, "answers": 1}}
    monkeypatch.setitem(MODELS, "faq", MODELS["talker"] | {"id": "faq", "task": "retrieve"} | more)
    page = visit(serve("faq"))
    page.get_by_text(
        "The answer comes from a knowledge base of 17 questions. Other questions are not answered."
    ).wait_for()
    page.get_by_text("run faq · bm25 · 17 questions, 1 answer", exact=True).wait_for()


def test_runs_that_reply_share_a_view(serve: Callable[..., Site], visit: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "faq", MODELS["talker"] | {"id": "faq", "task": "retrieve"})
    page = visit(serve("talker", "faq"))
    assert page.get_by_role("navigation").get_by_role("link").all_inner_texts() == ["Chat"]
    assert page.get_by_role("combobox").locator("option").all_inner_texts() == ["talker", "faq"]


def test_a_task_that_the_page_does_not_know_has_a_plain_view(
    serve: Callable[..., Site], visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODELS, "counter", MODELS["topics"] | {"id": "counter", "task": "count"})
    site = serve("counter")
    page = visit(site)
    assert page.get_by_role("navigation").get_by_role("link").all_inner_texts() == ["Count"]
    page.get_by_role("textbox", name="Text").fill("one two")
    page.locator("dl.fields dd").first.wait_for()
    assert page.locator("dl.fields dt").all_text_contents() == ["text", "words"]
    assert page.locator("dl.fields dd").all_inner_texts() == ["one two", '["one","two"]']
    assert site.asked("count") == [{"model": "counter", "q": "one two"}]


def test_a_conversation(serve: Callable[..., Site], visit: Open) -> None:
    site = serve("talker")
    page = visit(site)
    assert page.get_by_role("navigation").get_by_role("link").all_inner_texts() == ["Chat"]
    field = page.get_by_role("textbox", name="Your message")
    field.fill("Good morning")
    page.keyboard.press("Enter")
    page.get_by_text("You said: Good morning (1)").wait_for()
    field.fill("And now?")
    page.get_by_role("button", name="Send").click()
    page.get_by_text("You said: And now? (3)").wait_for()
    assert [message["role"] for message in site.asked("chat/completions")[-1]["messages"]] == [
        "user", "assistant", "user",
    ]  # fmt: skip
    assert page.locator(".turn").count() == 4
    page.get_by_role("button", name="New conversation").click()
    assert page.locator(".turn").count() == 0


def test_a_verdict_and_its_reasons(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve("topics"))
    page.get_by_role("textbox", name="Text to classify").fill("It rains. The sun is gone")
    page.locator(".shaded-sentences").wait_for()
    assert page.locator(".finding .label").inner_text() == "weather"
    assert page.locator(".probabilities dt").all_inner_texts() == ["weather", "sport"]
    assert page.locator(".probabilities dd").all_inner_texts() == ["70 %", "30 %"]
    assert page.locator(".shaded-sentences p").all_inner_texts() == ["It rains", "The sun is gone"]
    assert page.locator(".sentence-weight").all_inner_texts() == ["33 %", "67 %"]


def test_words_and_their_labels(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve("chunker"))
    assert page.get_by_role("navigation").get_by_role("link").all_inner_texts() == ["Tag"]
    page.get_by_role("textbox", name="Sentence to tag").fill("It rains again")
    page.locator(".tagged-words").wait_for()
    assert page.locator(".tagged-word .tag").all_inner_texts() == ["B-X", "O", "O"]
    assert page.get_by_role("status").filter(has_text="X: It").count() == 1
    page.get_by_role("button", name="rains").click()
    assert page.get_by_role("button", name="rains").get_attribute("aria-pressed") == "true"
    assert page.locator(".probabilities dt").all_inner_texts() == ["O", "B-X"]
    strengths = page.locator(".tagged-word .shaded").evaluate_all(
        "marks => marks.map((mark) => Number(mark.style.getPropertyValue('--strength')))"
    )
    assert strengths == [0.5, 1, 0]


# ---------------------------------------------------------------------------------------------------------------------
# Every view, for everyone


def fill(page: Any, view: str) -> None:
    """Something in a view, and all that follows from it."""
    match view:
        case "translate":
            write(page, "The cat sleeps again. A xylophone.\nאני.")
            page.wait_for_function("() => document.querySelectorAll('.way').length === 5")
        case "inside":
            page.get_by_role("textbox", name="Sentence to inspect").fill("I take a shower.")
            page.get_by_role("switch", name="encoder.0.self, head 0").click()
            page.locator(".slip .after").wait_for()
        case "chat":
            page.get_by_role("textbox", name="Your message").fill("Good morning")
            page.keyboard.press("Enter")
            page.get_by_text("(1)").wait_for()
        case "classify":
            page.get_by_role("textbox", name="Text to classify").fill("It rains. The sun is gone")
            page.locator(".shaded-sentences").wait_for()
        case "pictures":
            choose_picture(page, what="classify")
            page.locator(".patch-panel").first.wait_for()
        case "tag":
            page.get_by_role("textbox", name="Sentence to tag").fill("It rains on <b>Rome</b>")
            page.locator(".tagged-words").wait_for()
        case "caption":
            choose_picture(page)
            page.locator(".multiples").wait_for()


@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_serious(serve: Callable[..., Site], visit: Open, view: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = visit(serve(), f"#{view}")

    def serious(scheme: str) -> list[str]:
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(300)  # colours fade in
        found = axe.Axe().run(page).response["violations"]
        return [
            f"{one['id']}: {node['html'][:120]} {node['failureSummary']}"
            for one in found if one["impact"] in ("serious", "critical") for node in one["nodes"]
        ]  # fmt: skip

    assert serious("light") == []
    fill(page, view)
    assert serious("light") == []
    assert serious("dark") == []


@pytest.mark.parametrize("view", VIEWS)
def test_a_phone_never_scrolls_sideways(serve: Callable[..., Site], visit: Open, view: str) -> None:
    page = visit(serve(), f"#{view}", viewport=PHONE)
    fits = "document.documentElement.scrollWidth <= innerWidth"
    assert page.evaluate(fits)
    fill(page, view)
    assert page.evaluate(fits)


def test_the_theme_is_the_readers_and_is_remembered(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve(), scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(paper)
    page.get_by_role("button", name="Light colours").click()
    light = page.evaluate(paper)
    assert light != dark
    page.reload()
    page.locator(".view").wait_for()
    assert page.evaluate(paper) == light


def test_going_back_leads_to_the_view_before(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve())
    write(page, "the cat")
    page.get_by_role("link", name="Classify", exact=True).click()
    page.get_by_role("textbox", name="Text to classify").wait_for()
    assert page.title() == "Classify · Regard"
    page.go_back()
    field = page.get_by_role("textbox", name="Text to translate")
    field.wait_for()
    assert field.input_value() == "the cat"
    page.get_by_role("link", name="Skip to the text").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert field.is_visible()


def test_nothing_moves_for_those_who_want_no_motion(serve: Callable[..., Site], visit: Open) -> None:
    page = visit(serve())
    page.emulate_media(reduced_motion="reduce")
    page.route("**/v1/translate", lambda route: None)  # the answer never comes
    write(page, "the cat")
    assert page.locator(".output .pending").evaluate("node => getComputedStyle(node).animationName") == "none"
    page.unroute_all(behavior="ignoreErrors")


# ---------------------------------------------------------------------------------------------------------------------
# The real server


def test_page_and_server_understand_each_other(visit: Open, tmp_path: Path) -> None:
    run = serving.small_run(tmp_path / "en-it").folder
    with serving.running(run) as port:
        site = Site(Pretender(()), f"http://127.0.0.1:{port}")
        page = visit(site, allow="ERR_CONNECTION_REFUSED")  # the browser may look for the icon when the server has gone
        write(page, "The cat sleeps.\nWhere is Anna?")
        page.wait_for_function(
            "() => document.querySelector('.folio').ariaBusy === 'false' && document.querySelector('.way')"
        )
        assert page.locator(".output .stale, .output .pending, .notice:not([hidden])").count() == 0
        page.locator(".output .bit").first.hover()
        assert page.locator(".says").inner_text().startswith("“")
        page.get_by_role("button", name="Look inside").click()
        page.get_by_role("switch").first.click()
        page.locator(".slip .after").wait_for()
        assert page.locator(".slip-says").inner_text() != ""
