"""The options of every command that searches, such as translate, and of those that only score."""

from __future__ import annotations

import argparse
from typing import Any

from regard.cli.settings import add_set, add_setting, given_settings, settings_help
from regard.config import Search
from regard.errors import SettingsError
from regard.recipe import describe, make_recipe, to_table, with_overrides


def add_scoring(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Options for what decides a score, --set for all search settings, and --ensemble."""
    search = parser.add_argument_group("search")
    search.add_argument(
        "--ensemble", action="append", default=[], metavar="RUN", help="another run that joins in; may be repeated"
    )
    add_setting(search, "--length-penalty", "search.length_penalty", "X")
    add_setting(search, "--coverage-penalty", "search.coverage_penalty", "X")
    add_setting(search, "--batch-tokens", "search.batch_tokens", "N")
    add_set(search)
    parser.epilog = settings_help(Search)
    return search


def add_search(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """The same, and options for the commonest settings of the search itself."""
    search = add_scoring(parser)
    add_setting(search, "--beam", "search.beam", "N")
    add_setting(search, "--min-length", "search.min_length", "N")
    add_setting(search, "--no-repeat", "search.no_repeat", "N")
    _add_switch(search, "--sample", "sample")
    add_setting(search, "--temperature", "search.temperature", "X")
    add_setting(search, "--top-k", "search.top_k", "N")
    add_setting(search, "--top-p", "search.top_p", "X")
    add_setting(search, "--seed", "search.seed", "N")
    _add_switch(search, "--replace-unknown", "replace_unknown")
    return search


def search_settings(options: argparse.Namespace, *own: Search) -> dict[str, Any]:
    """The search settings that were given, checked together with those of a run's `own` that they leave as they are.

    Several are the settings of several runs; without any, the defaults are taken for them.
    """
    table = with_overrides(given_settings(options), options.set)
    for section in table:
        if section != "search":
            raise SettingsError(f"--set {section}: a trained run takes only search settings, e.g. search.beam=8")
    given = table.get("search", {})
    for base in own or (Search(),):
        checked = make_recipe({"search": to_table(base) | given}, where="options").search
    return {name: getattr(checked, name) for name in given}


def _add_switch(parser: argparse._ActionsContainer, flag: str, name: str) -> None:
    help_text = describe(Search)[name].replace("%", "%%")
    parser.add_argument(flag, action="store_true", default=None, dest=f"search.{name}", help=help_text)
