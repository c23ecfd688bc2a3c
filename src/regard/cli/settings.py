"""Options that stand for settings: their type and help come from the settings themselves."""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from typing import Any

from regard.config import ARCHITECTURES, Corpus, Recipe
from regard.recipe import describe, setting_type


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
        help='any setting, e.g. "train.warmup=800"; may be repeated',
    )


def given_settings(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The settings whose options were given, as nested tables."""
    table: dict[str, dict[str, Any]] = {}
    for path, value in vars(options).items():
        section, dot, key = path.partition(".")
        if dot and value is not None:
            table.setdefault(section, {})[key] = value
    return table


def settings_help(*sections: type) -> str:
    """A table of settings with their defaults and help, for the end of a help text."""
    lines = []
    for section in sections:
        instance = section()
        prefix = "model" if hasattr(instance, "arch") else section.__name__.lower()
        for key, text in describe(section).items():
            default = getattr(instance, key)
            lines.append(f"  {prefix}.{key} = {default!r}\n      {text}")
    return _percent("settings for --set:\n" + "\n".join(lines))


def all_sections() -> dict[str, type]:
    """Every section of a recipe by name; that of the model once for each kind of architecture."""
    usual = Recipe()
    sections = {part.name: type(getattr(usual, part.name)) for part in fields(Recipe) if part.name != "model"}
    named: dict[type, list[str]] = {}
    for name, model in ARCHITECTURES.items():
        named.setdefault(type(model), []).append(name)
    return sections | {f"model ({', '.join(names)})": kind for kind, names in named.items()}


def settings_page() -> str:
    """The page docs/settings.md."""
    parts = [
        "# Settings",
        "",
        "Every setting, its default and what it does. A recipe holds them as TOML tables of these names;",
        "`--set section.key=value` overrides one. Made by `make docs` from `config/`.",
    ]
    sections = all_sections()
    sections = {"data": sections["data"], "data.train": Corpus} | sections
    for name, section in sections.items():
        instance = section()
        parts += ["", f"## {name}", "", str(section.__doc__), "", "| setting | default | meaning |", "|---|---|---|"]
        for key, text in describe(section).items():
            default = json.dumps(getattr(instance, key))
            parts.append(f"| `{key}` | `{default}` | {text} |")
    presets = [f"`{name}`" for name in ARCHITECTURES]
    parts += [
        "",
        "## Architectures",
        "",
        f"`model.arch` is one of {', '.join(presets)}; `regard info --arch NAME` shows it.",
    ]
    return "\n".join(parts) + "\n"


def _percent(text: str) -> str:
    return text.replace("%", "%%")


if __name__ == "__main__":
    print(settings_page(), end="")
