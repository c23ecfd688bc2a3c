"""`regard serve`: a page and an API before one run or several."""

from __future__ import annotations

import argparse
import importlib.util
from dataclasses import MISSING, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from regard.config.recipe import describe
from regard.errors import SettingsError
from regard.run import Run
from regard.server.settings import ServerSettings

NEEDED = ("fastapi", "uvicorn", "prometheus_client", "python_multipart")
"""Modules of the extra."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Serve runs: a page to translate and look inside, and an API for clients of LibreTranslate and OpenAI.\n\n"
        "  regard serve runs/demo\n"
        "  regard serve runs/en-de runs/de-en --port 8080\n"
        "  regard serve --new-key keys.jsonl\n"
        "  regard serve runs/en-de --host 0.0.0.0 --keys keys.jsonl"
    )
    parser.add_argument("runs", metavar="RUN", nargs="*", help="run folders; chosen by language pair or by name")
    parser.add_argument("--new-key", metavar="FILE", help="make an API key, add it to this file, print it, and leave")
    helps, hints, plain = describe(ServerSettings), get_type_hints(ServerSettings), ServerSettings()
    for setting in fields(ServerSettings):
        name = setting.name
        add_option(parser, name, hints[name], helps[name], getattr(plain, name))


def add_option(parser: argparse.ArgumentParser, name: str, kind: Any, text: str, default: Any) -> None:
    """An option for a setting, which is left to the settings where it is not given."""
    flag = f"--{name.replace('_', '-')}"
    shown = "" if default in ("", (), False) else f" (default: {default})"
    how: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": (text + shown).replace("%", "%%")}
    if kind is bool:
        parser.add_argument(flag, action="store_true", **how)
    elif get_origin(kind) is Literal:
        parser.add_argument(flag, choices=get_args(kind), **how)
    elif get_origin(kind) is tuple:
        parser.add_argument(flag, action="append", metavar="NAME", **how)
    else:
        parser.add_argument(flag, type=kind, metavar={int: "N", float: "SECONDS"}.get(kind, name.upper()), **how)


def given_settings(options: argparse.Namespace) -> ServerSettings:
    """The settings, with the options that were given."""
    given = {setting.name: getattr(options, setting.name, MISSING) for setting in fields(ServerSettings)}
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return ServerSettings(**{name: value for name, value in values.items() if value is not MISSING})


def run(options: argparse.Namespace) -> int:
    """Serve."""
    if options.new_key:
        from regard.server.api_keys import add_key

        print(add_key(options.new_key))
        return 0
    settings = given_settings(options)
    if not options.runs:
        raise SettingsError("nothing to serve: give one run folder or several, e.g. runs/demo")
    for folder in options.runs:
        Run.open(folder)  # a mistyped name is told at once
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise SettingsError(f'serving needs {missing[0]}, which is not installed: pip install "regard[serve]"')
    from regard.server.serve import serve

    serve(options.runs, settings, lambda line: print(line, flush=True))
    return 0
