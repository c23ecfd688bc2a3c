"""The page as a file: what is inlined, what is escaped, what the policy allows."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import SettingsError
from regard.pages import COMMON_STYLES, IMPORT, PAGES, bundle, render_page, resolve

HOSTILE = "</script><script>alert(1)</script><!-- \u2028 \u2029 & {{policy}} {{data}} \"'"


class Elements(HTMLParser):
    """Tags with their attributes, and the text of each, as a browser's parser would see them."""

    def __init__(self, page: str):
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.is_open = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), []))
        self.is_open = True

    def handle_endtag(self, tag: str) -> None:
        self.is_open = False

    def handle_data(self, data: str) -> None:
        if self.is_open:
            self.found[-1][2].append(data)

    def of(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attributes, "".join(text)) for name, attributes, text in self.found if name == tag]


def embedded(page: str) -> Any:
    [text] = [text for attributes, text in Elements(page).of("script") if attributes.get("id") == "data"]
    return json.loads(text)


def policy(page: str) -> dict[str, list[str]]:
    [content] = [a["content"] for a, _ in Elements(page).of("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert content is not None
    return {words[0]: words[1:] for words in (directive.split() for directive in content.split(";"))}


def test_hostile_text_stays_data() -> None:
    data = {"title": HOSTILE, "samples": [{"source": HOSTILE, "output": HOSTILE}], "settings": {HOSTILE: HOSTILE}}
    page, plain = render_page("report", data), render_page("report", {})
    assert embedded(page) == data
    assert len(Elements(page).of("script")) == len(Elements(plain).of("script"))
    assert "<script>alert" not in page
    assert [text for _, text in Elements(page).of("title")] == [f"{HOSTILE} · Regard"]
    assert policy(page) == policy(plain)


@settings(deadline=None, max_examples=40)
@given(st.dictionaries(st.text(st.characters(), max_size=8), st.text(st.characters(), max_size=20), max_size=4))
def test_any_text_comes_back_unchanged(data: dict[str, str]) -> None:
    page = render_page("report", {"settings": data})
    page.encode()  # half a surrogate pair, too, can be written to a file
    assert embedded(page) == {"settings": data}


def test_numbers_that_json_cannot_write_become_null() -> None:
    data = {
        "steps": [{"step": 1, "loss": float("nan")}, {"step": 2, "loss": float("inf")}],
        "lengths": {"source": ((1, 2),)},
    }
    assert embedded(render_page("report", data)) == {
        "steps": [{"step": 1, "loss": None}, {"step": 2, "loss": None}],
        "lengths": {"source": [[1, 2]]},
    }


@pytest.mark.parametrize("name", ["report", "inspect"])
def test_policy_allows_the_inlined_parts_by_hash_and_nothing_else(name: str) -> None:
    page = render_page(name, {"title": "x"})
    rules, elements = policy(page), Elements(page)

    def hashes(texts: list[str]) -> list[str]:
        return [f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts]

    scripts = [text for attributes, text in elements.of("script") if attributes.get("type") != "application/json"]
    styles = [text for _, text in elements.of("style")]
    assert len(scripts) > 1
    assert len(styles) > 1
    assert rules["script-src"] == hashes(scripts)
    assert rules["style-src"] == hashes(styles)
    assert rules["default-src"] == ["'none'"]
    assert not any("unsafe" in word for words in rules.values() for word in words)
    assert not any("style" in attributes for _, attributes, _ in elements.found), "a style attribute would be refused"


@pytest.mark.parametrize("name", ["report", "inspect"])
def test_page_refers_to_nothing_outside_itself(name: str) -> None:
    page = render_page(name, {})
    assert not re.findall(r"https?:|url\((?!#)|@import|\bfetch\(|XMLHttpRequest|WebSocket", page)
    addresses = [
        attributes[name] for _, attributes, _ in Elements(page).found for name in ("src", "href") if name in attributes
    ]
    assert all(address and address.startswith(("#", "data:")) for address in addresses)


@pytest.mark.parametrize(
    ("name", "most", "title"), [("report", 110_000, "Training report"), ("inspect", 110_000, "A look inside")]
)
def test_page_without_data_is_small_and_has_a_title(name: str, most: int, title: str) -> None:
    page = render_page(name, {})
    assert len(page.encode()) < most
    assert [text for _, text in Elements(page).of("title")] == [f"{title} · Regard"]


@pytest.mark.parametrize("name", ["reprot", "../pages/report", "report.html", ""])
def test_unknown_page_is_an_error(name: str) -> None:
    with pytest.raises(SettingsError, match=r"pages: .*report"):
        render_page(name, {})


def parts_of_pages() -> dict[str, str]:
    """The scripts and styles by their path."""
    root = Path(str(files("regard.pages")))
    paths = [path for path in root.rglob("*") if path.suffix in (".js", ".css")]
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def test_every_part_is_used_and_can_be_inlined() -> None:
    parts = parts_of_pages()
    used = {f"{style}.css" for page in PAGES.values() for style in (*COMMON_STYLES, *page.styles)}
    used |= {"common/theme.js", *(f"{page.script}.js" for page in PAGES.values())}
    for name, text in parts.items():
        used |= {f"{resolve(name, found['path'])}.js" for found in IMPORT.finditer(text)}
    assert parts.keys() == used
    for name, text in parts.items():
        assert not re.search(r"</(script|style)|<!--", text, re.IGNORECASE), f"{name} would end its own element"


def test_a_page_imports_from_its_own_folder_and_from_common() -> None:
    for name, text in parts_of_pages().items():
        folders = {resolve(name, found["path"]).partition("/")[0] for found in IMPORT.finditer(text)}
        assert folders <= {name.partition("/")[0], "common"}, name


def test_modules_keep_to_what_can_be_bundled() -> None:
    for name, text in parts_of_pages().items():
        if (
            not name.endswith(".js") or name == "common/theme.js"
        ):  # that one runs before anything is painted, and is no module
            continue
        rest = IMPORT.sub("", text)
        assert not re.search(r"^\s*import\b", rest, re.MULTILINE), f"{name}: an import that bundling does not know"
        assert len(re.findall(r"^\s*export\b", rest, re.MULTILINE)) <= 1, name
        assert not re.search(r"^export (?!\{[^}]*\};\n\Z)", rest, re.MULTILINE), (
            f"{name}: its export is not the last thing"
        )


def test_a_bundle_has_each_module_once_and_before_what_needs_it() -> None:
    modules = {
        "a/top": 'import * as one from "./one.js";\nimport { two as zwei } from "../b/two.js";\nuse(one.a, zwei);',
        "a/one": 'import { two } from "../b/two.js";\nconst a = two;\nexport { a };',
        "b/two": "const two = 2;\nexport { two };",
    }
    assert bundle("a/top", modules.__getitem__) == (
        '"use strict";\n'
        "const $b_two = (() => {\nconst two = 2;\nreturn { two };\n})();\n"
        "const $a_one = (() => {\nconst { two } = $b_two;\nconst a = two;\nreturn { a };\n})();\n"
        "const $a_top = (() => {\nconst one = $a_one;\nconst { two: zwei } = $b_two;\nuse(one.a, zwei);\n})();"
    )


def test_modules_in_a_circle_cannot_be_bundled() -> None:
    modules = {"a": 'import { b } from "./b.js";\n', "b": 'import { a } from "./a.js";\n'}
    with pytest.raises(AssertionError, match="a -> b -> a"):
        bundle("a", modules.__getitem__)
