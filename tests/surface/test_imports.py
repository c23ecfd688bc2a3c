"""The table of docs/architecture.md: who may import whom, and what must not be imported at start-up."""

import ast
import functools
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard import registry, tasks

ROOT = Path(regard.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


TASKS = sorted(path.name for path in (ROOT / "tasks").iterdir() if (path / "__init__.py").is_file())
NO_OTHER_TASK = "all above but other tasks"

KNOWN_VIOLATIONS = {
    "config/recipe.py -> tasks",  # a type annotation only
}
"""Imports against the table that are still to be removed. Lines only ever leave this set."""


def read_table() -> dict[str, set[str]]:
    """What each package may import, as the page has it."""
    may: dict[str, set[str]] = {}
    rows = re.findall(r"^\| `([\w/]+)` \|.*\| ([^|]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    rows += [(name, NO_OTHER_TASK) for name in (f"tasks/{task}" for task in TASKS) if name not in dict(rows)]
    for part, words in rows:
        rule, _, extra = words.partition("; ")
        named, without = rule.removeprefix("all above").removeprefix(" but "), rule.startswith("all above")
        names = {name for name in may if name.startswith("tasks/")} if named == "other tasks" else parts_in(named)
        assert names | parts_in(extra) <= may.keys(), f"{part}: names a package that is not above it"
        may[part] = (may.keys() - names if without else names) | parts_in(extra)
    for part in ("server", "cli"):
        may[part] |= {name for name in may if name.startswith("tasks/")}
    return may


def parts_in(words: str) -> set[str]:
    """Names of packages in a list such as "errors, tasks/translate"."""
    return set(re.findall(r"[\w/]+", words)) - {"nothing"}


MAY_IMPORT = read_table()


def test_the_table_names_every_package():
    parts = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    tasks = {f"tasks/{task}" for task in TASKS}
    assert (parts - {"__init__", "__main__"}) | tasks == MAY_IMPORT.keys()


@functools.cache
def imported_modules(path: Path) -> set[str]:
    """Names of our modules that a file imports, anywhere in it; of `from regard.x import y` both x and x.y."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.removeprefix("regard.") for name in names if name.startswith("regard.")} - {"__version__"}


def part_of(module: str) -> str:
    """The row of the table for a module such as "tasks.tag.data"."""
    first, _, rest = module.partition(".")
    task = rest.partition(".")[0]
    return f"tasks/{task}" if first == "tasks" and task in TASKS else first


def violations(path: Path) -> set[str]:
    """Imports of a file that the table does not allow, as lines "file -> package"."""
    place = path.relative_to(ROOT).as_posix()
    part = part_of(place.removesuffix(".py").replace("/", "."))
    if part in ("__init__", "__main__"):
        return set()
    found = {part_of(module) for module in imported_modules(path)}
    return {f"{place} -> {other}" for other in found - MAY_IMPORT[part] - {part}}


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_only_what_its_package_may(path):
    assert violations(path) <= KNOWN_VIOLATIONS


def test_known_violations_still_exist():
    """A violation that has been removed leaves the list, so that it cannot come back."""
    assert set().union(*map(violations, ROOT.rglob("*.py"))) >= KNOWN_VIOLATIONS


def test_no_task_imports_another_but_chat_translate():
    others = {name for name in MAY_IMPORT if name.startswith("tasks/")}
    allowed = {(name, other) for name in others for other in MAY_IMPORT[name] & others}
    assert allowed == {("tasks/chat", "tasks/translate")}


@pytest.mark.parametrize(
    "module", ["regard", "regard.cli", "regard.cli.train", "regard.tasks.translate.cli", "regard.run"]
)
def test_torch_is_not_imported_before_it_is_needed(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_load_gives_is_public():
    for name in registry.TASKS:
        task = tasks.find(name)
        made = inspect.get_annotations(tasks.part(name, task.module).load, eval_str=True)["return"]
        assert made.__name__ == task.predictor
        assert getattr(regard, task.predictor) is made
        assert task.predictor in regard.__all__


def test_type_checkers_see_every_public_function():
    """The predictors come from the registry, so that a new task changes nothing here."""
    [block] = [node for node in ast.parse((ROOT / "__init__.py").read_text()).body if isinstance(node, ast.If)]
    imported = {alias.asname for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported == set(regard.__all__) - {"__version__"} - {tasks.find(name).predictor for name in registry.TASKS}


def test_public_names_exist_and_are_typed():
    for name in regard.__all__:
        assert getattr(regard, name) is not None
    assert dir(regard) == regard.__all__
    assert (ROOT / "py.typed").is_file()
    with pytest.raises(AttributeError):
        _ = regard.nothing
