"""Pages: self-contained HTML files, each drawn in the browser from JSON inside the file.

`render_page` inserts the styles, the script and the data of a page into a skeleton. The file needs no network, and its
Content-Security-Policy allows only its own parts. Each page has a folder; parts that several pages use are in common/.

The script is an ES module, bundled with all modules that it imports; the server serves the same modules one by one.
Modules use a small part of the language: imports are at the top and name a file by its relative path, and one
`export { ... };` ends the file. In a bundle, each module is a function that is called once and returns its exports.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from regard.errors import SettingsError, nearest

_SLOT = re.compile(r"\{\{([a-z]+)\}\}")
_COMMENT = re.compile(r"//|/\*.*\*/$")
# Characters that could end a script element or a line of script, and lone surrogates, which UTF-8 cannot encode.
_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")
IMPORT = re.compile(
    r'^import (?P<names>\* as \w+|\{[^}]*\}) from "(?P<path>\.\.?/[a-z]+(?:/[a-z]+)*)\.js";\n', re.MULTILINE
)
_EXPORT = re.compile(r"^export (?P<names>\{[^}]*\});$", re.MULTILINE)


class Page(NamedTuple):
    """A kind of page, e.g. the training report. `script` and `styles` are paths in this folder, without .js or .css."""

    script: str
    title: str  # for data without a title
    subject: str  # one word for the thing that the page shows
    command: str
    """The command that writes such pages. The command may overwrite a file that contains the command's name."""
    styles: tuple[str, ...]


_SHEET, _LABELS, _WEIGHTS = "common/sheet", "common/labels", "common/weights"
_LOOKING, _PATCHES, _TIMELINES = "common/looking", "common/patches", "common/timelines"
PAGES = {
    "report": Page(
        "report/report",
        "Training report",
        "report",
        "regard train",
        (_WEIGHTS, _SHEET, _LABELS, _LOOKING, _PATCHES, _TIMELINES),
    ),
    "evaluation": Page(
        "evaluation/evaluation", "Evaluation", "evaluation", "regard evaluate", (_SHEET, "evaluation/evaluation")
    ),
    "compare": Page(
        "compare/compare",
        "Comparison",
        "comparison",
        "regard compare",
        (_SHEET, "evaluation/evaluation", "compare/compare"),
    ),
    "roofline": Page("roofline/roofline", "Roofline", "roofline", "regard info", (_SHEET, "roofline/roofline")),
    "inspect": Page("inspect/inspect", "A look inside", "translation", "regard inspect", (_WEIGHTS, "inspect/inspect")),
    "document": Page("inspect/document", "A look inside", "document", "regard inspect", (_SHEET, _LABELS)),
    "labeled": Page(
        "inspect/labeled", "A look inside", "picture", "regard inspect", (_SHEET, _LABELS, _LOOKING, _PATCHES)
    ),
    "picture": Page("inspect/picture", "A look inside", "picture", "regard inspect", (_SHEET, _LOOKING)),
    "frames": Page(
        "inspect/frames", "A look inside", "series", "regard inspect", (_WEIGHTS, _SHEET, _LABELS, _TIMELINES)
    ),
    "tags": Page("inspect/tags", "A look inside", "sentence", "regard inspect", (_WEIGHTS, _SHEET, _LABELS)),
}
COMMON_STYLES = ("common/theme", "common/book", "common/draw")


def render_page(name: str, data: Mapping[str, Any]) -> str:
    """The text of an HTML file that shows `data`; `name` is the kind of page, a key of PAGES, e.g. "report"."""
    if name not in PAGES:
        raise SettingsError(f'there is no page "{name}"{nearest(name, PAGES)} (pages: {", ".join(PAGES)})')
    page = PAGES[name]
    styles = [_part(f"{style}.css") for style in (*COMMON_STYLES, *page.styles)]
    theme, script = _part("common/theme.js"), bundle(page.script, lambda module: _part(f"{module}.js"))
    text = json.dumps(_finite(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    slots = {
        "policy": (  # allows exactly these texts, images inside the file, and nothing else
            f"default-src 'none'; style-src {_hashes(styles)}; script-src {_hashes([theme, script])}; img-src data:; "
            "base-uri 'none'; form-action 'none'"
        ),
        "command": page.command,
        "title": html.escape(str(data.get("title") or page.title)),
        "styles": "\n".join(f"<style>{style}</style>" for style in styles),
        "theme": f"<script>{theme}</script>",
        "subject": page.subject,
        "data": _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text),
        "script": f"<script>{script}</script>",
    }
    # One pass over the skeleton, so that text of users that looks like a slot is not replaced.
    skeleton = (files(__name__) / "skeleton.html").read_text(encoding="utf-8")
    return _SLOT.sub(lambda found: slots[found[1]], skeleton)


def _part(name: str) -> str:
    """The text of the file `name` of this folder, e.g. "common/theme.css", without indentation and comment lines."""
    lines = (line.strip() for line in (files(__name__) / name).read_text(encoding="utf-8").splitlines())
    return "\n".join(line for line in lines if line and not _COMMENT.match(line))


def _hashes(parts: Sequence[str]) -> str:
    """The SHA-256 hashes of scripts or styles, as a Content-Security-Policy lists those that it allows."""
    digests = (hashlib.sha256(text.encode()).digest() for text in parts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def _finite(value: Any) -> Any:
    """Copy nested data with None in place of numbers that JSON cannot represent, e.g. a loss of NaN."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def bundle(name: str, read: Callable[[str], str]) -> str:
    """Join the JavaScript module `name` and all modules that it imports into one script, imported modules first.

    Modules are named by their path without the suffix, e.g. "inspect/look"; `read` returns the text of a module.
    """
    made: dict[str, str] = {}

    def variable(name: str) -> str:
        return "$" + name.replace("/", "_")

    def add(name: str, importers: tuple[str, ...]) -> None:
        if name in importers:
            raise AssertionError(
                f"JavaScript modules import each other in a circle; remove an import: {' -> '.join((*importers, name))}"
            )
        if name in made:
            return
        text = read(name)
        for found in IMPORT.finditer(text):
            other, names = resolve(name, found["path"]), found["names"].removeprefix("* as ").replace(" as ", ": ")
            add(other, (*importers, name))
            text = text.replace(found[0], f"const {names} = {variable(other)};\n", 1)
        body = _EXPORT.sub(r"return \g<names>;", text)
        made[name] = f"const {variable(name)} = (() => {{\n{body}\n}})();"

    add(name, ())
    return "\n".join(['"use strict";', *made.values()])


def resolve(importer: str, path: str) -> str:
    """The module that `importer` imports by the relative `path`: "inspect/look", "../common/draw" -> "common/draw"."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(importer), path))
