"""ES modules as one plain script, for a page that must be whole in one file.

Our modules keep to a small part of the language: imports stand at the top and name a file beside them, and one
`export { ... };` ends the file. Each module becomes a function that is called once and returns what it exports.
"""

from __future__ import annotations

import re
from collections.abc import Callable

IMPORT = re.compile(r'^import (?P<names>\* as \w+|\{[^}]*\}) from "\./(?P<module>[a-z]+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?P<names>\{[^}]*\});$", re.MULTILINE)


def bundle(name: str, read: Callable[[str], str]) -> str:
    """The module `name` with all that it imports, each once and before whatever needs it; `read` gives their texts."""
    made: dict[str, str] = {}

    def add(name: str, importers: tuple[str, ...]) -> None:
        if name in importers:
            raise AssertionError(f"modules import each other in a circle: {' -> '.join((*importers, name))}")
        if name in made:
            return
        text = read(name)
        for found in IMPORT.finditer(text):
            add(found["module"], (*importers, name))
        body = _EXPORT.sub(r"return \g<names>;", IMPORT.sub(_take, text))
        made[name] = f"const ${name} = (() => {{\n{body}\n}})();"

    add(name, ())
    return "\n".join(['"use strict";', *made.values()])


def _take(found: re.Match[str]) -> str:
    """An import as a declaration: { a as b } is { a: b } there."""
    names = found["names"].removeprefix("* as ").replace(" as ", ": ")
    return f"const {names} = ${found['module']};\n"
