"""The command line. Each command is a `Command` in the table COMMANDS of its module.

The module of a command is imported when the command is called. Nothing here imports torch, so that help is immediate.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from regard import __version__
from regard.errors import WRITE_ERRORS, RegardError, SettingsError, Terminated, nearest
from regard.registry import TASKS
from regard.system import keep_memory, use_utf8_output
from regard.tasks import find as find_task
from regard.tasks import part_name, part_name_of_run

if TYPE_CHECKING:
    from regard.terminal import Command

GENERAL = {
    "Train": {
        "demo": ("regard.cli.demo", "train on a built-in corpus, test, and write a report"),
        "train": ("regard.cli.train", "train a model on your own data"),
        "resume": ("regard.cli.train", "continue a run exactly where it stopped"),
        "finetune": ("regard.cli.train", "continue training a finished run on other data"),
        "compare": ("regard.cli.compare", "train and score several systems with the same budget"),
        "settings": ("regard.cli.settings", "list the settings of recipes, with defaults and ranges"),
        "data": ("regard.cli.data", "measure, clean and split a corpus"),
    },
    "Look inside": {
        "inspect": ("regard.cli.inspect", "show how a model reached one result: attention, search, attributions"),
        "info": ("regard.cli.info", "show the card of a run, or the layers of an architecture"),
    },
    "Share": {
        "serve": ("regard.cli.serve", "serve runs with a web page and a REST API"),
        "export": ("regard.cli.export", "convert a run for other programs, e.g. CTranslate2, Marian, ONNX"),
        "import": ("regard.cli.export", "make a run of a published Marian model"),
        "pull": ("regard.cli.export", "fetch a published run from a model hub"),
        "verify": ("regard.cli.info", "check the files of a run against their checksums"),
    },
}
"""Commands that belong to no task, by group. Each has the module that contains it and its help in one line."""


def groups() -> dict[str, dict[str, tuple[str, str]]]:
    """All commands, as {group: {command: (module, one-line help)}}, in the order of `regard --help`."""
    task_commands: dict[str, tuple[str, str]] = {}
    for task in TASKS:
        for command, text in find_task(task).commands.items():
            module, earlier = task_commands.get(command, (part_name(task, "cli"), ""))
            task_commands[command] = module, f"{earlier}; {text}" if earlier else text
    train, *others = GENERAL.items()
    return dict([train, ("Use", task_commands), *others])


def commands() -> dict[str, tuple[str, str]]:
    return {name: entry for group in groups().values() for name, entry in group.items()}


def find_command(name: str, words: Sequence[str] = ()) -> Command:
    """The command `name`. If several tasks or variants have it, the run among the `words` after it decides."""
    known = commands()
    if name not in known:
        raise SettingsError(f'there is no command "{name}"{nearest(name, known)} (see "regard --help")')
    module = known[name][0]
    tasks = {task: find_task(task) for task in TASKS if name in find_task(task).commands}
    if len(tasks) > 1 or any(task.variants for task in tasks.values()):
        module = _module_of_run(words, tasks) or module
    found: Command | str = import_module(module).COMMANDS[name]
    if isinstance(found, str):  # the name of another module, which is imported for this command only
        return import_module(found).COMMANDS[name]
    return found


def _module_of_run(words: Sequence[str], tasks: Collection[str]) -> str:
    """The module with the commands for the first run folder among `words`; empty if its task is not in `tasks`."""
    from regard.run import RECIPE, Run

    for word in words:
        if os.path.isfile(os.path.join(word, RECIPE)):
            run = Run.open(word)
            return part_name_of_run(task, "cli", run.sizes) if (task := run.recipe.data.task) in tasks else ""
    return ""


def main(argv: list[str] | None = None) -> int:
    """Run the command `argv` (None: that of sys.argv), e.g. ["train", "--help"], and return the exit code.

    0: success; 1: fine-tuning made the run worse, or a check found a problem; 2: wrong input, or output that cannot be
    written; 130: interrupted by Ctrl-C; 143: ended by SIGTERM.
    """
    # Waiting OpenMP threads should sleep soon: on a busy machine, spinning threads take the cores from the threads they
    # wait for (docs/log.md). This must be set before torch is first imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    use_utf8_output()
    arguments, files = list(sys.argv[1:] if argv is None else argv), []
    while arguments and arguments[0].partition("=")[0] == "--plugin":
        _, equals, file = arguments.pop(0).partition("=")
        files.append(file if equals else arguments.pop(0) if arguments else "")
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if arguments[0] in ("-V", "--version"):
        print(f"regard {__version__}")
        return 0
    try:
        if files:
            from regard import plugins

            for file in files:
                plugins.load(file)
        name, *words = arguments
        command = find_command(name, words)
        options = command.parser(f"regard {name}", words).parse(words)
        if name != "serve":  # the server calls it itself for the runs that it opens with torch
            keep_memory()
        return command.run(options)
    except RegardError as error:
        print(f"regard: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        print("\nregard: interrupted", file=sys.stderr)
        return 143 if isinstance(error, Terminated) else 130
    except BrokenPipeError:  # the reader of our output has exited, e.g. `| head`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 0
    except OSError as error:
        if error.errno not in WRITE_ERRORS:
            raise
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        print(f"regard: cannot write the output ({error.strerror})", file=sys.stderr)
        return 2


def overview() -> str:
    """The text of `regard --help`."""
    width = max(map(len, commands()))
    lines = [
        "Regard trains, runs and explains attention models.",
        "",
        "usage: regard COMMAND [options]        regard COMMAND --help for options and examples",
        "       regard --plugin FILE COMMAND    with tasks or architectures from a file (docs/architecture.md)",
        "",
    ]
    for group, entries in groups().items():
        lines += [f"{group}:", *(f"  {name:<{width}}  {text}" for name, (_, text) in entries.items()), ""]
    return "\n".join([*lines, "Start with:  regard demo"])
