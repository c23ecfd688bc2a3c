"""`regard serve`: a web page and an API for one or more runs."""

from __future__ import annotations

import argparse
import importlib.util
from dataclasses import asdict
from typing import Any, Literal, get_args, get_origin, get_type_hints

from regard.config.recipe import describe
from regard.errors import SettingsError
from regard.run import Run
from regard.server.settings import ServerSettings
from regard.terminal import Command, Parser, brief


def configure(parser: Parser) -> None:
    """Add the run folders, --new-key, and one option for each field of `ServerSettings`, which has the defaults."""
    parser.add_argument("runs", metavar="RUN", nargs="*", help="run folders; requests name a run or its languages")
    parser.add_argument("--new-key", metavar="FILE", help="make an API key, add it to this file, print it, and exit")
    helps, hints = describe(ServerSettings), get_type_hints(ServerSettings)
    for name, default in asdict(ServerSettings()).items():
        flag, kind = f"--{name.replace('_', '-')}", hints[name]
        shown = "" if default in ("", (), False) else f" (default: {default})"
        text = (brief(helps[name]) + shown).replace("%", "%%")
        how: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": text}
        if kind is bool:
            parser.add_argument(flag, action="store_true", **how)
        elif get_origin(kind) is Literal:
            parser.add_argument(flag, choices=get_args(kind), metavar="|".join(get_args(kind)), **how)
        elif get_origin(kind) is tuple:
            parser.add_argument(flag, action="append", metavar="NAME", **how)
        else:
            parser.add_argument(flag, type=kind, metavar={int: "N", float: "SECONDS"}.get(kind, name.upper()), **how)


def given_settings(options: argparse.Namespace) -> ServerSettings:
    given: dict[str, Any] = {name: vars(options)[name] for name in asdict(ServerSettings()) if name in options}
    return ServerSettings(**given | {name: tuple(value) for name, value in given.items() if isinstance(value, list)})


def run(options: argparse.Namespace) -> int:
    if options.new_key:
        from regard.server.api_keys import add_key

        print(add_key(options.new_key))
        return 0
    settings = given_settings(options)
    if not options.runs:
        raise SettingsError("nothing to serve: give one or more run folders, e.g. runs/demo")
    for folder in options.runs:
        Run.open(folder)  # a wrong name is reported at once
    needed = ("fastapi", "uvicorn", "prometheus_client", "python_multipart")  # the extra "serve"
    if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
        raise SettingsError(f'serving needs {missing[0]}, which is not installed: pip install "regard[serve]"')
    from regard.server.serve import serve

    serve(options.runs, settings, lambda line: print(line, flush=True))
    return 0


COMMANDS = {
    "serve": Command(
        "Serve runs: a page to use and inspect them, and an API for clients of LibreTranslate and OpenAI.",
        configure,
        run,
        examples=(
            "regard serve runs/demo",
            "regard serve runs/en-de runs/de-en --port 8080",
            "regard serve --new-key keys.jsonl",
            "regard serve runs/en-de --host 0.0.0.0 --keys keys.jsonl",
        ),
    )
}
