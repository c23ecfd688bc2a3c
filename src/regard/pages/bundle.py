"""Bundles ES modules into one plain script, for pages that are one file.

Our modules use a small part of the language: imports are at the top and name a file by its relative path, and one
`export { ... };` ends the file. Each module becomes a function that is called once and returns what it exports.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

IMPORT = re.compile(
    r'^import (?P<names>\* as \w+|\{[^}]*\}) from "(?P<path>\.\.?/[a-z]+(?:/[a-z]+)*)\.js";\n', re.MULTILINE
)
_EXPORT = re.compile(r"^export (?P<names>\{[^}]*\});$", re.MULTILINE)


def bundle(name: str, read: Callable[[str], str]) -> str:
    """The module `name` with all that it imports, each once and before the modules that need it.

    Modules are named by their path without the suffix ("inspect/look"); `read` returns the text of one.
    """
    made: dict[str, str] = {}

    def add(name: str, importers: tuple[str, ...]) -> None:
        if name in importers:
            raise AssertionError(f"modules import each other in a circle: {' -> '.join((*importers, name))}")
        if name in made:
            return
        text = read(name)
        for found in IMPORT.finditer(text):
            add(resolve(name, found["path"]), (*importers, name))
        body = _EXPORT.sub(r"return \g<names>;", IMPORT.sub(lambda found: _declare(name, found), text))
        made[name] = f"const {_variable(name)} = (() => {{\n{body}\n}})();"

    add(name, ())
    return "\n".join(['"use strict";', *made.values()])


def resolve(importer: str, path: str) -> str:
    """The module that a relative path means in the module `importer`."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(importer), path))


def _declare(importer: str, found: re.Match[str]) -> str:
    """An import as a declaration; `{ a as b }` becomes `{ a: b }`."""
    names = found["names"].removeprefix("* as ").replace(" as ", ": ")
    return f"const {names} = {_variable(resolve(importer, found['path']))};\n"


def _variable(name: str) -> str:
    return "$" + name.replace("/", "_")
