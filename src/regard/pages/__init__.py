"""Pages: one self-contained HTML file each, drawn in the browser from JSON that stands in the file itself.

All share one skeleton, in which `render_page` puts a page's styles, its script and the data in their places. The
script is an ES module; what that imports comes with it. The file then asks nothing of the network, and its policy lets
nothing run but what was put there. A server may hand out the same modules one by one.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from regard.errors import SettingsError, nearest
from regard.pages.bundle import bundle

__all__ = ["PAGES", "render_page"]

_SLOT = re.compile(r"\{\{([a-z]+)\}\}")
_COMMENT = re.compile(r"//|/\*.*\*/$")
# What could end a script element or a line of script, and halves of characters, which UTF-8 cannot write.
_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


class Page(NamedTuple):
    """What one page has of its own; its script bears its name."""

    title: str
    """Where the data has none."""
    subject: str
    """What it shows, in a word."""
    command: str
    """What makes such pages; by this a file is known for one of ours."""
    styles: tuple[str, ...]


PAGES = {
    "report": Page("Training report", "report", "regard train", ("weights", "report", "labels")),
    "evaluation": Page("Evaluation", "evaluation", "regard evaluate", ("report", "evaluation")),
    "inspect": Page("A look inside", "translation", "regard inspect", ("weights", "inspect")),
    "document": Page("A look inside", "document", "regard inspect", ("report", "labels")),
    "tags": Page("A look inside", "sentence", "regard inspect", ("weights", "report", "labels")),
}
COMMON_STYLES = ("theme", "book", "draw")


def render_page(name: str, data: Mapping[str, Any]) -> str:
    """The page `name` ("report", "inspect") that draws `data`, as the text of one HTML file."""
    if name not in PAGES:
        raise SettingsError(f'there is no page "{name}"{nearest(name, PAGES)} (pages: {", ".join(PAGES)})')
    page = PAGES[name]
    styles = [_part(f"{style}.css") for style in (*COMMON_STYLES, *page.styles)]
    theme, script = _part("theme.js"), bundle(name, lambda module: _part(f"{module}.js"))
    slots = {
        "policy": _policy(styles, [theme, script]),
        "command": page.command,
        "title": html.escape(str(data.get("title") or page.title)),
        "styles": "\n".join(f"<style>{style}</style>" for style in styles),
        "theme": f"<script>{theme}</script>",
        "subject": page.subject,
        "data": _embed(data),
        "script": f"<script>{script}</script>",
    }
    # One pass over the skeleton: what a user wrote is put in and never looked at again.
    skeleton = (files(__name__) / "skeleton.html").read_text(encoding="utf-8")
    return _SLOT.sub(lambda found: slots[found[1]], skeleton)


def _part(name: str) -> str:
    """A style or script without its indentation and its lines of comment, which are for those who read the source."""
    lines = (line.strip() for line in (files(__name__) / name).read_text(encoding="utf-8").splitlines())
    return "\n".join(line for line in lines if line and not _COMMENT.match(line))


def _policy(styles: Sequence[str], scripts: Sequence[str]) -> str:
    """A Content-Security-Policy that allows these very texts, the icon inside the file, and nothing else."""

    def hashes(parts: Sequence[str]) -> str:
        digests = (hashlib.sha256(text.encode()).digest() for text in parts)
        return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)

    return (
        f"default-src 'none'; style-src {hashes(styles)}; script-src {hashes(scripts)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _embed(data: Mapping[str, Any]) -> str:
    """JSON that is safe inside a script element."""
    text = json.dumps(_finite(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _finite(value: Any) -> Any:
    """The same data with null for every number that JSON cannot write (a loss that became nan)."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
