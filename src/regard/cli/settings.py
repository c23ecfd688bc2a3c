"""`regard settings`: every setting with its default, its type or range, and its help (docs/settings.md)."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from regard import registry
from regard.config import DEFAULT_ARCH, Corpus, ModelSettings, presets
from regard.config import settings_of as settings_of_arch
from regard.config.recipe import all_sections, describe, find_task, join_tables
from regard.errors import SettingsError, nearest
from regard.terminal import Command, Parser, brief, console, for_people, show_table, show_title

TYPES = {int: "integer", float: "number", bool: "true or false", str: "text"}


@dataclass(frozen=True)
class Setting:
    """One setting of a section of a recipe, as `regard settings` shows it."""

    name: str
    """The name without the section, e.g. "warmup_steps"."""
    type: str
    """The type in words, with the range of a number, or the list of possible values."""
    default: str
    """The default value as TOML; if the presets of a model differ, the value of the first preset."""
    help: str
    presets: dict[str, str]
    """The value of each preset, if the presets differ."""
    choices: tuple[str, ...] = ()
    """All possible values, if the setting allows only certain values."""


def model_sections() -> dict[str, type]:
    """The settings classes of all models. The key of a class lists its presets, e.g. "model (han)"."""
    by_class: dict[type, list[str]] = {}
    for name, model in presets().items():
        by_class.setdefault(type(model), []).append(name)
    return {f"model ({', '.join(names)})": kind for kind, names in by_class.items()}


def settings_of(section: type, arch: str = "") -> list[Setting]:
    """The settings of the settings class `section`, in order.

    For a model, `arch` is the preset whose values are the defaults; empty: the values of all presets are given.
    """
    is_model = issubclass(section, ModelSettings)
    named = {name: model for name, model in presets().items() if type(model) is section} if is_model else {}
    named = {arch: named[arch]} if arch else named
    instances = list(named.values()) or [section()]
    hints = get_type_hints(section, include_extras=True)
    found = []
    for key, meaning in describe(section).items():
        if is_model and key == "arch":
            continue
        defaults = [json.dumps(getattr(instance, key)) for instance in instances]
        differing = dict(zip(named, defaults, strict=True)) if len(set(defaults)) > 1 else {}
        choices = tuple(map(str, get_args(hints[key]))) if get_origin(hints[key]) is Literal else ()
        found.append(Setting(key, _type_text(hints[key]), defaults[0], meaning, differing, choices))
    return found


def _type_text(hint: Any) -> str:
    """A type hint in words, e.g. "integer, at least 1" or "adam | muon"."""
    if get_origin(hint) is Annotated:
        base, *ranges = get_args(hint)
        return ", ".join([_type_text(base), *map(str, ranges)])
    if get_origin(hint) is Literal:
        return " | ".join(map(str, get_args(hint)))
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        inner = "tables" if parts[0] is Corpus else {"text": "texts"}.get(_type_text(parts[0]), "numbers")
        return f"list of {inner}"
    return TYPES.get(hint, str(hint))


def configure(parser: Parser) -> None:
    parser.add_argument(
        "what", metavar="SECTION|TASK", nargs="?", help="a section (e.g. train, search), a task or an architecture"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--markdown", action="store_true", help="print all settings as a Markdown page")


def run(options: argparse.Namespace) -> int:
    if options.markdown:
        print(settings_page(), end="")
        return 0
    chosen = _choose(options.what) if options.what else all_sections() | model_sections()
    arch = options.what if options.what in registry.ARCHITECTURES else ""
    if options.json:
        facts = {name: [asdict(one) for one in settings_of(kind, arch)] for name, kind in chosen.items()}
        print(json.dumps(facts, indent=2, ensure_ascii=False))
    elif options.what:
        for name, kind in chosen.items():
            _show_section(name, kind, arch)
        if options.what in registry.TASKS and (defaults := task_defaults(options.what)):
            show_title(f"Defaults of the task {options.what}")
            show_table(["setting", "default"], defaults.items())
    else:
        rows = [(name, len(settings_of(kind)), _meaning(kind)) for name, kind in chosen.items()]
        show_title("Sections of a recipe", "regard settings SECTION shows one")
        show_table(["section", "settings", "meaning"], rows)
        if for_people():
            print(
                '\n  Change a setting with --set, e.g. "regard train ... --set train.seed=2", or in a recipe (TOML).\n'
            )
    return 0


def _meaning(section: type) -> str:
    return " ".join(str(section.__doc__).split())


def _choose(what: str) -> dict[str, type]:
    """The settings classes to show, by title, for `what`, a section or an architecture; none for the name of a task."""
    known = all_sections()
    if what in known:
        return {what: known[what]}
    if what == "model":
        return model_sections()
    if what in registry.ARCHITECTURES:
        return {f"model ({what})": type(settings_of_arch(what))}
    if what in registry.TASKS:
        return {}
    others = f"; choose from {', '.join(known)}, model"
    guess = nearest(what, [*known, "model", *registry.TASKS, *registry.ARCHITECTURES])
    raise SettingsError(f'there is no section "{what}"{guess or others}')


def _show_section(name: str, kind: type, arch: str) -> None:
    show_title(name, _meaning(kind))
    prefix = name.partition(" ")[0]
    found = settings_of(kind, arch)
    if not for_people():
        shown = (
            (f"{prefix}.{one.name}", "by preset" if one.presets else one.default, one.type, one.help) for one in found
        )
        show_table(["setting", "default", "type", "meaning"], shown)
        return
    from rich.text import Text

    screen = console()
    for one in found:
        default = Text(" = ").append(one.default, "cyan") if not one.presets else Text("")
        screen.print(Text.assemble("  ", (f"{prefix}.{one.name}", "bold"), default, ("   " + one.type, "dim")))
        screen.print(Text(textwrap.fill(one.help, min(screen.width, 110) - 2, initial_indent=" " * 6,
                                        subsequent_indent=" " * 6)))  # fmt: skip
        for preset, value in one.presets.items():
            screen.print(Text.assemble(" " * 6, (f"{preset:<18} ", "dim"), (value, "cyan")))


def task_defaults(task: str) -> dict[str, str]:
    """The defaults that a task sets itself: setting and value in TOML, e.g. {"train.batch_tokens": "1024"}."""
    facts = find_task(task)
    tables = join_tables({"train": {"metric": facts.metrics[0]}}, facts.defaults)
    return {f"{name}.{key}": json.dumps(table[key]) for name, table in tables.items() for key in table}


def task_help(task: str) -> str:
    """The last lines of `regard train --task TASK --help`: the settings of the task, with defaults and meanings."""
    lines = []
    if section := all_sections().get(task):
        own = [one for one in settings_of(section) if one.name in section.__annotations__]  # not those of several tasks
        shown = {f"{task}.{one.name} = {one.default}": brief(one.help) for one in own}
        width = max(map(len, shown), default=0)
        rows = [f"  {name:<{width}}  {meaning}"[:100] for name, meaning in shown.items()]
        lines = [f"settings of {task} (for --set):", *rows, ""] if rows else []
    return "\n".join([*lines, "regard settings lists every setting."]).replace("%", "%%")


def settings_page() -> str:
    """All settings as a Markdown page, which is stored as docs/settings.md."""
    known = {"data": all_sections()["data"], "data.train": Corpus} | all_sections() | model_sections()
    parts = [
        "# Settings",
        "",
        "Every setting with its default, its type or range, and what it does. A recipe holds them as TOML tables of",
        "these names; `--set section.key=value` changes one; `regard settings SECTION` prints a section. Written by",
        "`make docs` from the settings themselves.",
        "",
        "Without a recipe, `regard train` chooses many of them from the data ([training.md](training.md)); some tasks",
        "have [defaults of their own](#defaults-of-the-tasks).",
        "",
        *textwrap.wrap(
            "`model.arch` names the preset that the other settings of the model start from: "
            f"{_listed(registry.ARCHITECTURES)}. A recipe without it has `{DEFAULT_ARCH}`, or the default of its task. "
            "`regard info --arch NAME` shows one.",
            width=120,
            break_long_words=False,
            break_on_hyphens=False,
        ),
    ]
    for name, section in known.items():
        parts += ["", f"## {name}", "", _meaning(section), "", *_section_table(section)]
    parts += ["", "## Defaults of the tasks", "", "| task | what it does | settings |", "|---|---|---|"]
    for task in registry.TASKS:
        defaults = _listed(f"{name} = {value}" for name, value in task_defaults(task).items())
        parts.append(f"| `{task}` | {find_task(task).help} | {defaults} |")
    return "\n".join(parts) + "\n"


def _section_table(section: type) -> Iterator[str]:
    """Yield the lines of a Markdown table of the settings of the class `section`.

    If the presets of a model have different values, a second table shows these.
    """
    found = settings_of(section)
    yield "| setting | default | type | meaning |"
    yield "|---|---|---|---|"
    for one in found:
        default = "below" if one.presets else f"`{one.default}`"
        kind = _listed(one.choices) or one.type
        yield f"| `{one.name}` | {default} | {kind} | {one.help} |"
    differing = [one for one in found if one.presets]
    if differing:
        yield ""
        yield f"| preset | {' | '.join(f'`{one.name}`' for one in differing)} |"
        yield "|---" * (len(differing) + 1) + "|"
        for preset in differing[0].presets:
            yield f"| `{preset}` | {' | '.join(f'`{one.presets[preset]}`' for one in differing)} |"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


COMMANDS = {
    "settings": Command(
        "List the sections of a recipe; or the settings of a section, a task or an architecture, with their defaults,\n"
        "types or ranges, and meanings.",
        configure,
        run,
        examples=("regard settings", "regard settings train", "regard settings tag", "regard settings bahdanau --json"),
    )
}
