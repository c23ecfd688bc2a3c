"""Pages: one self-contained HTML file each, drawn in the browser from JSON that stands in the file itself.

A skeleton (`report.html`, `inspect.html`) names its styles and scripts as any page would; `render_page` puts them, and
the data, in their places. Its script is an ES module; what that imports comes with it. The file then asks nothing of
the network, and its policy lets nothing run but what was put there. A server may hand out the same modules one by one.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from regard.errors import SettingsError, nearest
from regard.pages.bundle import bundle

__all__ = ["render_page"]

_PARTS = re.compile(
    r'<link rel="stylesheet" href="(?P<style>[a-z]+\.css)">'
    r'|<script(?P<module> type="module")? src="(?P<script>[a-z]+)\.js"></script>'
    r"|\{\{(?P<slot>policy|title|data)(?::(?P<otherwise>[^}]*))?\}\}"
)
_COMMENT = re.compile(r"//|/\*.*\*/$")
# What could end a script element or a line of script, and halves of characters, which UTF-8 cannot write.
_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def render_page(name: str, data: Mapping[str, Any]) -> str:
    """The page `name` ("report", "inspect") that draws `data`, as the text of one HTML file."""
    folder = files(__name__)
    known = sorted(entry.name.removesuffix(".html") for entry in folder.iterdir() if entry.name.endswith(".html"))
    if name not in known:
        raise SettingsError(f'there is no page "{name}"{nearest(name, known)} (pages: {", ".join(known)})')
    skeleton = (folder / f"{name}.html").read_text(encoding="utf-8")

    styles = {found["style"]: _part(folder, found["style"]) for found in _PARTS.finditer(skeleton) if found["style"]}
    scripts = {found["script"]: _script(folder, found) for found in _PARTS.finditer(skeleton) if found["script"]}
    slots = {
        "policy": _policy(styles, scripts),
        "title": html.escape(str(data.get("title") or "")),
        "data": _embed(data),
    }

    def fill(found: re.Match[str]) -> str:
        if found["style"]:
            return f"<style>{styles[found['style']]}</style>"
        if found["script"]:
            return f"<script>{scripts[found['script']]}</script>"
        return slots[found["slot"]] or found["otherwise"] or ""

    # One pass over the skeleton: what a user wrote is put in and never looked at again.
    return _PARTS.sub(fill, skeleton)


def _part(folder: Traversable, name: str) -> str:
    """A style or script without its indentation and its lines of comment, which are for those who read the source."""
    lines = (line.strip() for line in (folder / name).read_text(encoding="utf-8").splitlines())
    return "\n".join(line for line in lines if line and not _COMMENT.match(line))


def _script(folder: Traversable, found: re.Match[str]) -> str:
    def read(name: str) -> str:
        return _part(folder, f"{name}.js")

    return bundle(found["script"], read) if found["module"] else read(found["script"])


def _policy(styles: Mapping[str, str], scripts: Mapping[str, str]) -> str:
    """A Content-Security-Policy that allows these very texts, the icon inside the file, and nothing else."""

    def hashes(parts: Mapping[str, str]) -> str:
        digests = (hashlib.sha256(text.encode()).digest() for text in parts.values())
        return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests) or "'none'"

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
