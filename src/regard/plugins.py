"""Plugins: Python files outside Regard that add lines to the tables of `registry.py`.

    regard --plugin my_model.py train --arch mine ...      on the command line
    import my_model                                        in Python

A run that uses a plugin names it in its card. Opening the run never imports the plugin, because a run folder may come
from anybody; without the plugin it is refused with a line that says what is missing.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from regard import registry
from regard.config import Recipe
from regard.errors import RegardError, SettingsError


def load(file: str | Path) -> None:
    """Import a plugin file under its own name; a second time does nothing."""
    path = Path(file)
    name = path.stem
    if path.suffix != ".py" or not path.is_file():
        raise SettingsError(f"--plugin {file}: there is no such Python file")
    if not name.isidentifier():
        raise SettingsError(f'--plugin {file}: "{name}" is not a name of a Python module; rename the file')
    spec = sys.modules[name].__spec__ if name in sys.modules else importlib.util.find_spec(name)
    if spec is not None and (spec.origin is None or Path(spec.origin).resolve() != path.resolve()):
        raise SettingsError(f'--plugin {file}: there is another module with the name "{name}"; rename the file')
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except RegardError:
        raise
    except Exception as error:  # the file is the user's: whatever it raises is bad input
        del sys.modules[name]
        raise SettingsError(f"--plugin {file}: cannot be imported ({type(error).__name__}: {error})") from error


def used_by(recipe: Recipe) -> list[str]:
    """The plugins that a recipe needs, by the name of their module."""
    needed = {registry.ARCHITECTURES[recipe.model.arch], registry.TASKS[recipe.data.task]}
    return sorted(filter(_is_plugin, needed))


def require(names: Iterable[str], where: str | Path) -> None:
    """Raise a `SettingsError` that names the first of these plugins that has not been imported."""
    for name in names:
        if name not in sys.modules:
            raise SettingsError(
                f'{where}: needs the plugin "{name}": regard --plugin {name}.py COMMAND ... (in Python: import {name})'
            )


def files() -> list[str]:
    """The files of all imported plugins, for new processes."""
    names = sorted(filter(_is_plugin, {*registry.ARCHITECTURES.values(), *registry.TASKS.values()}))
    return [str(sys.modules[name].__file__) for name in names if name in sys.modules]


def _is_plugin(module: str) -> bool:
    return module.partition(".")[0] != "regard"
