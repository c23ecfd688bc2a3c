"""The contract of tasks: what every registered task has, and how far apart tasks are."""

import ast
import dataclasses
from importlib import import_module
from pathlib import Path

import pytest

from regard import tasks
from regard.config.recipe import describe, make_recipe, to_table
from regard.models import presets
from regard.registry import TASKS
from regard.tasks.training import Training, training_of
from tests.surface.test_closures import ROOT, closure, ours

MOST_MODULES = 63
"""Of ours, that importing the training of a task may import. Lower it when it falls."""
MORE_MODULES = {"translate": 78, "chat": 83, "language-model": 73, "masked-language-model": 64, "caption": 78}
"""The same for tasks that need more: those that validate by a search import decoding too."""
BUILD_ON = {"chat": {"translate"}}
"""Tasks that may import others."""


@pytest.mark.parametrize("name", TASKS)
def test_a_task_states_its_facts(name):
    task = tasks.find(name)
    assert task.name == name
    assert all((task.help, task.does, task.unit, task.metrics))
    assert presets(task.model_kind)
    assert set(task.metrics) <= task.scores.keys()
    for text in task.scores.values():
        assert text.format(0.5) != text
    commands = {name for one in TASKS for name in tasks.find(one).commands}
    assert task.command in commands
    assert tasks.has_part(name, task.module)
    assert tasks.has_part(name, "cli")
    assert not tasks.has_part(name, "nothing")


@pytest.mark.parametrize("name", TASKS)
def test_every_setting_of_a_task_has_help(name):
    settings = tasks.settings_class(tasks.find(name))
    if settings:
        assert settings.__name__ == f"{name.title().replace('-', '')}Settings"
        assert all(describe(settings)[field.name] for field in dataclasses.fields(settings))


@pytest.mark.parametrize("name", TASKS)
def test_the_defaults_of_a_task_are_a_recipe_that_it_accepts(name):
    task = tasks.find(name)
    recipe = make_recipe({"data": {"task": name}})
    assert recipe.model.kind == task.model_kind
    assert recipe.train.metric == task.metrics[0]
    assert isinstance(recipe.task, tasks.settings_class(task) or type(None))
    table = to_table(recipe)
    assert table.keys() - {"data", "tokenizer", "model", "train"} == (
        ({name} if task.settings else set()) | ({"search"} if task.writes else set())
    )
    assert make_recipe(table) == recipe
    for setting in task.unsupported:
        section, key = setting.split(".")
        assert not table[section][key]
    assert set(task.kept) <= table["data"].keys()


@pytest.mark.parametrize("name", TASKS)
def test_a_task_has_its_training(name):
    assert isinstance(training_of(make_recipe({"data": {"task": name}})), Training)


@pytest.mark.parametrize("name", TASKS)
def test_the_training_of_a_task_imports_little_and_no_other_task(name):
    found = ours(closure(f"{TASKS[name]}.training"))
    assert len(found) <= MORE_MODULES.get(name, MOST_MODULES), sorted(found)
    others = TASKS.keys() - {name} - BUILD_ON.get(name, set())
    assert not [module for module in found for other in others if f"{module}.".startswith(f"{TASKS[other]}.")]


@pytest.mark.parametrize("name", TASKS)
def test_the_facts_of_a_task_need_no_torch(name):
    assert "torch" not in closure(TASKS[name])
    assert import_module(TASKS[name]).TASK is tasks.find(name)


# ---------------------------------------------------------------------------------------------------------------------
# Nothing outside the folder of a task knows it by name

MAY_NAME_TASKS = ("registry.py", "cli/demo.py")
"""The registry and the demonstration."""

NO_TASKS = {
    ("documents/html.py", "translate"): "the attribute of HTML",
    ("documents/markdown.py", "tag"): "the group of a regular expression",
    ("tasks/retrieve/__init__.py", "chat"): "the command",
    ("tasks/translate/inspect/page.py", "embed"): "the state before the first layer",
    ("analysis/embedding_maps.py", "embed"): "the module with the embeddings",
    ("export/ctranslate2.py", "embed"): "the module with the embeddings",
}
"""Strings that are the name of a task but mean something else in this file."""
LAYERS = {"embed"}
"""Names of tasks that are also names of a state or module of networks, in models/."""


def named_tasks(path: Path) -> set[str]:
    """The tasks outside its own folder that a file names in a string or imports from."""
    name, place = path.relative_to(ROOT).as_posix(), path.relative_to(ROOT).parts
    own = place[1].replace("_", "-") if place[0] == "tasks" and len(place) > 2 else ""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        known = TASKS.keys() - LAYERS if place[0] == "models" else TASKS
        if isinstance(node, ast.Constant) and node.value in known and (name, node.value) not in NO_TASKS:
            found.add(node.value)
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            found |= {task for task, home in TASKS.items() for one in modules if f"{one}.".startswith(f"{home}.")}
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            found |= {task for task, home in TASKS.items() for one in names if f"{one}.".startswith(f"{home}.")}
    return found - {own} - BUILD_ON.get(own, set())


def test_only_its_folder_and_the_registry_know_a_task():
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        if place not in MAY_NAME_TASKS and (tasks_named := named_tasks(path)):
            found[place] = tasks_named
    assert not found


@pytest.mark.parametrize(("name", "word"), NO_TASKS)
def test_a_string_that_means_no_task_is_still_there(name, word):
    tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))
    assert any(isinstance(node, ast.Constant) and node.value == word for node in ast.walk(tree))
