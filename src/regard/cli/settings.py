"""Options that stand for settings: their type and help come from the settings themselves."""

from __future__ import annotations

import argparse
from typing import Any

from regard.config import describe, setting_type


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
        instance, prefix = section(), section.__name__.lower()
        for key, text in describe(section).items():
            default = getattr(instance, key)
            lines.append(f"  {prefix}.{key} = {default!r}\n      {text}")
    return _percent("settings for --set:\n" + "\n".join(lines))


def _percent(text: str) -> str:
    return text.replace("%", "%%")
