"""Plugins: Python files outside Regard that add entries, e.g. an architecture, to the tables of `registry.py`.

    regard --plugin my_model.py train --arch mine ...      on the command line
    import my_model                                        in Python

The card of a run lists the plugins that the run needs. Opening a run never imports a plugin, because a run folder may
come from an untrusted person; if a plugin has not been imported, the run is refused with a message that names it.
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
    """Import a plugin file as a module with the name of the file, unless it is already imported."""
    path = Path(file)
    name = path.stem
    if path.suffix != ".py" or not path.is_file():
        raise SettingsError(f"--plugin {file}: there is no such Python file; give the path of a .py file")
    if not name.isidentifier():
        raise SettingsError(f'--plugin {file}: "{name}" is not a valid name for a Python module; rename the file')
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
        raise SettingsError(
            f"--plugin {file}: cannot be imported ({type(error).__name__}: {error}); correct the file"
        ) from error


def used_by(recipe: Recipe) -> list[str]:
    """The module names of the plugins that define the task or the architecture of a recipe."""
    needed = {registry.ARCHITECTURES[recipe.model.arch], registry.TASKS[recipe.data.task]}
    return sorted(filter(_is_plugin, needed))


def require(names: Iterable[str], where: str | Path) -> None:
    """Raise a `SettingsError` if a module of `names` (plugins) is not imported. `where`: the run that needs them."""
    for name in names:
        if name not in sys.modules:
            raise SettingsError(
                f'{where}: needs the plugin "{name}": regard --plugin {name}.py COMMAND ... (in Python: import {name})'
            )


def files() -> list[str]:
    """The paths of all imported plugins that define a task or an architecture, for child processes to import."""
    names = sorted(filter(_is_plugin, {*registry.ARCHITECTURES.values(), *registry.TASKS.values()}))
    return [str(sys.modules[name].__file__) for name in names if name in sys.modules]


def _is_plugin(module: str) -> bool:
    return module.partition(".")[0] != "regard"
