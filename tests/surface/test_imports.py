"""The table of docs/architecture.md: who may import whom, and what must not be imported at start-up."""

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import regard
from regard.tasks import HOMES

ROOT = Path(regard.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


def read_table() -> dict[str, set[str]]:
    """What each package may import, as the page has it."""
    may: dict[str, set[str]] = {}
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    for part, words in rows:
        everything, all_above, but = words.partition("all above")
        named = set(re.findall(r"\w+", but.removeprefix(" but ") if all_above else everything)) - {"nothing"}
        assert named <= may.keys(), f"{part}: what is not above it?"
        may[part] = may.keys() - named if all_above else named
    return may


MAY_IMPORT = read_table()


def test_the_table_names_every_package():
    parts = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert parts - {"__init__", "__main__"} == MAY_IMPORT.keys()


def imported_parts(path: Path) -> set[str]:
    """Names of the packages directly under `regard` that a file imports, anywhere in it."""
    parts = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "regard" else [f"regard.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        parts |= {name.split(".")[1] for name in names if name.startswith("regard.")}
    return parts - {"__version__"}


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_only_what_its_package_may(path):
    part = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if part in ("__init__", "__main__"):
        return
    assert imported_parts(path) <= MAY_IMPORT[part] | {part}


@pytest.mark.parametrize(
    "module", ["regard", "regard.cli", "regard.cli.train", "regard.tasks.translate.cli", "regard.run"]
)
def test_torch_is_not_imported_before_it_is_needed(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_load_gives_is_public():
    for home in HOMES.values():
        made = inspect.get_annotations(import_module(home).load, eval_str=True)["return"]
        assert getattr(regard, made.__name__) is made
        assert made.__name__ in regard.__all__


def test_public_names_exist_and_are_typed():
    for name in regard.__all__:
        assert getattr(regard, name) is not None
    assert dir(regard) == regard.__all__
    assert (ROOT / "py.typed").is_file()
    with pytest.raises(AttributeError):
        _ = regard.nothing
