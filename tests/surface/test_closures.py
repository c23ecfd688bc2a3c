"""How much of Regard an entry point imports: its import closure, followed without running anything."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import regard

ROOT = Path(regard.__file__).parent

TRANSLATE_BY_CTRANSLATE2 = (
    "regard.cli",
    "regard.tasks.translate.cli",
    "regard.tasks.translate.engine",
    "regard.tasks.translate.engine",
)
"""What `regard translate` imports, some of it inside functions, when CTranslate2 translates with a converted model."""
MOST_MODULES = 36
"""Of ours. Lower it when it falls."""


def file_of(module: str) -> Path | None:
    """The file of a module of ours; None for others."""
    place = ROOT.joinpath(*module.split(".")[1:])
    if module.split(".")[0] != "regard":
        return None
    package = place / "__init__.py"
    plain = place.with_suffix(".py")
    return package if package.is_file() else plain if plain.is_file() else None


def module_level(statements: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that run when a module is imported: none in functions, none under `if TYPE_CHECKING`."""
    for statement in statements:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield statement
        elif isinstance(statement, ast.If):
            if "TYPE_CHECKING" not in ast.unparse(statement.test):
                yield from module_level(statement.body)
            yield from module_level(statement.orelse)
        elif isinstance(statement, ast.Try):
            handlers = [inner for handler in statement.handlers for inner in handler.body]
            yield from module_level([*statement.body, *handlers, *statement.orelse, *statement.finalbody])
        elif isinstance(statement, ast.With | ast.ClassDef):
            yield from module_level(statement.body)


@cache
def direct_imports(module: str) -> frozenset[str]:
    """The modules that one module imports, its parent packages included."""
    file = file_of(module)
    parts = module.split(".")
    found = {".".join(parts[:end]) for end in range(1, len(parts))}
    if file is None:
        return frozenset(found)
    package = parts if file.name == "__init__.py" else parts[:-1]
    for statement in module_level(ast.parse(file.read_text(encoding="utf-8")).body):
        if isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names}
            continue
        above = package[: len(package) - statement.level + 1] if statement.level else []
        base = ".".join([*above, *([statement.module] if statement.module else [])])
        names = {f"{base}.{alias.name}" for alias in statement.names}
        found |= {base} | {name for name in names if file_of(name)}
    return frozenset(found)


def closure(module: str) -> set[str]:
    """All modules that importing one imports, itself included; those of others without what they import."""
    found, waiting = set[str](), [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += direct_imports(name)
    return found


def ours(modules: set[str]) -> set[str]:
    """The modules of Regard among them."""
    return {name for name in modules if file_of(name)}


def test_translation_by_ctranslate2_needs_few_modules_and_no_torch():
    found = set().union(*(closure(module) for module in TRANSLATE_BY_CTRANSLATE2))
    assert "torch" not in found
    assert len(ours(found)) <= MOST_MODULES, sorted(ours(found))


def test_the_entry_points_exist():
    assert all(file_of(module) for module in TRANSLATE_BY_CTRANSLATE2)


def test_a_closure_follows_imports_at_module_level_only(tmp_path, monkeypatch):
    files = {
        "__init__": "",
        "a": "import json\nfrom regard import b\nif TYPE_CHECKING:\n    import numpy\ndef f():\n    import torch\n",
        "b": "try:\n    from .c import d\nexcept ImportError:\n    pass\n",
        "c": "from . import a\n",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr(__name__ + ".ROOT", tmp_path)
    direct_imports.cache_clear()
    try:
        assert closure("regard.a") == {"regard", "regard.a", "regard.b", "regard.c", "json"}
    finally:
        direct_imports.cache_clear()


@pytest.mark.parametrize("module", ["regard.cli", "regard.tasks.translate.cli"])
def test_the_closure_holds_what_python_imports(module):
    code = f"import sys, {module}; print(*(name for name in sys.modules if name.split('.')[0] == 'regard'))"
    listed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert ours(closure(module)) == set(listed)
