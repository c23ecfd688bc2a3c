"""Options that stand for settings: their type and help come from the settings themselves."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from regard import registry
from regard.config import DEFAULT_ARCH, Corpus, ModelSettings, recipe
from regard.config.model import presets
from regard.config.recipe import describe, find_task, join_tables, setting_type

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from regard.text.words import ShadedSentence


def add_setting(parser: argparse._ActionsContainer, flag: str, path: str, metavar: str) -> None:
    """An option for the setting at `path`, e.g. "train.seed"."""
    kind, text = setting_type(path)
    parser.add_argument(flag, type=kind, metavar=metavar, dest=path, help=_percent(text))


def add_set(parser: argparse._ActionsContainer) -> None:
    """The option --set, for every setting that has no option of its own."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="A.B=C",
        help='any setting, e.g. "train.warmup_steps=800"; may be repeated',
    )


def given_settings(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The settings whose options were given, as nested tables."""
    table: dict[str, dict[str, Any]] = {}
    for path, value in vars(options).items():
        section, dot, key = path.partition(".")
        if dot and value is not None:
            table.setdefault(section, {})[key] = value
    return table


class Setting(NamedTuple):
    """One setting, as help and documentation tell it."""

    key: str
    defaults: tuple[str, ...]
    """As TOML; of a model with several presets that of each, where they differ."""
    meaning: str
    choices: tuple[str, ...]
    """All values that it may have, where they are few words."""


def settings_in(section: type) -> Iterator[Setting]:
    """The settings of a section, in their order."""
    is_model = issubclass(section, ModelSettings)
    instances = [model for model in presets().values() if type(model) is section] if is_model else [section()]
    hints = get_type_hints(section)
    for key, meaning in describe(section).items():
        defaults = tuple(json.dumps(getattr(instance, key)) for instance in instances)
        choices = get_args(hints[key]) if get_origin(hints[key]) is Literal else ()
        yield Setting(key, defaults if len(set(defaults)) > 1 else defaults[:1], meaning, choices)


def settings_help(*sections: type) -> str:
    """A table of settings with their defaults and help, for the end of a help text."""
    lines = []
    for section in sections:
        prefix = "model" if issubclass(section, ModelSettings) else section.__name__.removesuffix("Settings").lower()
        for key, defaults, meaning, choices in settings_in(section):
            one_of = f" One of {', '.join(choices)}." if choices else ""
            lines.append(f"  {prefix}.{key} = {' | '.join(defaults)}\n      {meaning}{one_of}")
    return _percent("settings for --set, with their defaults:\n" + "\n".join(lines))


def all_sections() -> dict[str, type]:
    """Every section of a recipe by name; that of the model once for each kind of architecture."""
    sections = recipe.all_sections()
    named: dict[type, list[str]] = {}
    for name, model in presets().items():
        named.setdefault(type(model), []).append(name)
    return sections | {f"model ({', '.join(names)})": kind for kind, names in named.items()}


def settings_page() -> str:
    """The page docs/settings.md."""
    sections = all_sections()
    sections = {"data": sections["data"], "data.train": Corpus} | sections
    parts = [
        "# Settings",
        "",
        "Every setting, its default and what it does. A recipe holds them as TOML tables of these names;",
        "`--set section.key=value` overrides one. Made by `make docs` from `config/`.",
        "",
        "Without a recipe, `regard train` chooses many of them from the data ([training.md](training.md)); some tasks",
        "have [defaults of their own](#defaults-of-the-tasks).",
        "",
        *_wrapped(
            "`model.arch` names the preset that the other settings of the model start from: "
            f"{_listed(registry.ARCHITECTURES)}. A recipe without it has `{DEFAULT_ARCH}`, or what its task has. "
            "`regard info --arch NAME` shows one."
        ),
    ]
    for name, section in sections.items():
        parts += ["", f"## {name}", "", str(section.__doc__), "", *_section_table(section)]
    return "\n".join([*parts, "", "## Defaults of the tasks", "", *_task_table()]) + "\n"


def _section_table(section: type) -> Iterator[str]:
    """The settings of a section; below them, preset by preset, those whose defaults depend on it."""
    named = [name for name, model in presets().items() if type(model) is section]
    told = [setting for setting in settings_in(section) if not (named and setting.key == "arch")]
    yield "| setting | default | meaning |"
    yield "|---|---|---|"
    for key, defaults, meaning, choices in told:
        one_of = f" One of {_listed(choices)}." if choices else ""
        yield f"| `{key}` | {f'`{defaults[0]}`' if len(defaults) == 1 else 'below'} | {meaning}{one_of} |"
    differing = [setting for setting in told if len(setting.defaults) > 1]
    if differing:
        yield ""
        yield f"| preset | {' | '.join(f'`{setting.key}`' for setting in differing)} |"
        yield "|---" * (len(differing) + 1) + "|"
        for place, name in enumerate(named):
            yield f"| `{name}` | {' | '.join(f'`{setting.defaults[place]}`' for setting in differing)} |"


def _task_table() -> Iterator[str]:
    """What tasks have in place of the defaults above."""
    yield "| task | what it does | settings |"
    yield "|---|---|---|"
    for task in registry.TASKS:
        facts = find_task(task)
        tables = join_tables({"train": {"metric": facts.metrics[0]}}, facts.defaults)
        settings = [f"{name}.{key} = {json.dumps(table[key])}" for name, table in tables.items() for key in table]
        yield f"| `{task}` | {facts.help} | {_listed(settings)} |"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def _percent(text: str) -> str:
    return text.replace("%", "%%")


if __name__ == "__main__":
    print(settings_page(), end="")


# Attention for the eye, on a terminal: what a text was read as, its parts and words the brighter the heavier.


LEVELS = 5
"""Shades of grey that an eye tells apart on a terminal."""
BAR = 6
"""Characters of the longest bar."""


def show_words(part: ShadedSentence, console: Console) -> None:
    """The words of a single part, shaded by their weights."""
    console.print(_shade(part, part.weight * max((word.weight for word in part.words), default=0.0)))


def show_weights(parts: Sequence[ShadedSentence], console: Console) -> None:
    """A line a part: its weight, as a figure and as a bar, and its words shaded by theirs."""
    from rich.text import Text

    heaviest = max((part.weight for part in parts), default=0.0)
    strongest = max((part.weight * word.weight for part in parts for word in part.words), default=0.0)
    for part in parts:
        bar = "█" * round(BAR * part.weight / heaviest) if heaviest else ""
        line = Text().append(f"{part.weight:6.1%} {bar:<{BAR}} ", style="dim")
        console.print(line.append_text(_shade(part, strongest)))


def _shade(part: ShadedSentence, strongest: float) -> Text:
    """A text whose words have a background as strong as their weight."""
    from rich.text import Text

    shaded, place = Text(), 0
    for word, weight in part.words:
        start = max(part.text.find(word, place), place)
        shaded.append(part.text[place:start], style="default")
        level = round(LEVELS * part.weight * weight / strongest) if strongest else 0
        grey = 232 + 4 * level  # of the 256 colours
        shaded.append(word, style=f"{'black' if level > 3 else 'white'} on color({grey})" if level else "default")
        place = start + len(word)
    shaded.append(part.text[place:], style="default")
    return shaded


# What is being done, for people who wait at a terminal.


@contextmanager
def status(doing: str = "") -> Iterator[Callable[[str], None]]:
    """Show what is being done, and give the function that changes it; silent where there is no terminal."""
    if not sys.stderr.isatty():
        yield lambda doing: None
        return
    from rich.console import Console

    with Console(stderr=True).status(f"[dim]{doing}[/]") as shown:
        yield lambda doing: shown.update(f"[dim]{doing}[/]")
