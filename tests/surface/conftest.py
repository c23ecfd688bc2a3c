"""A browser for the tests of pages: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regard.pages import render_page

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
PATIENCE = 20_000
"""Milliseconds that a page may take to do as it is told; a busy machine may need some."""

Show = Callable[..., Any]


@pytest.fixture(scope="module")
def browser_page() -> Iterator[Any]:
    """One browser page for a file of tests: to start one takes longer than most tests.

    Not for all: as long as Playwright is there, an event loop is running, and nobody else can have one.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as engine:
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = engine.chromium.launch(executable_path=chromium, args=options)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        yield page
        browser.close()


@pytest.fixture
def show_page(browser_page: Any, tmp_path: Path) -> Iterator[Show]:
    """Opens a page of some data; at the end, anything that it complained of or asked for is a failure."""
    page = browser_page
    file = tmp_path / "page.html"
    trouble: list[str] = []
    listeners = {
        "console": lambda message: trouble.append(f"console: {message.text}"),
        "pageerror": lambda error: trouble.append(f"error: {error}"),
        "request": lambda asked: trouble.append(f"request: {asked.url}"),
    }
    for event, listener in listeners.items():
        page.on(event, listener)

    def show(
        name: str,
        data: dict[str, Any],
        viewport: dict[str, int] = DESKTOP,
        scheme: str = "light",
        media: str = "screen",
    ) -> Any:
        file.write_text(render_page(name, data), encoding="utf-8")
        page.set_viewport_size(viewport)
        page.emulate_media(color_scheme=scheme, media=media)
        page.goto(file.as_uri())
        return page

    yield show
    page.evaluate("localStorage.clear()")
    for event, listener in listeners.items():
        page.remove_listener(event, listener)
    allowed = (f"request: {file.as_uri()}", "request: data:")
    assert [entry for entry in trouble if not entry.startswith(allowed)] == []
