"""`regard info`: the card of a run (card.json), or an architecture. `regard verify`: checksums of a run's files."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard import plugins
from regard.config import DataSettings
from regard.config.recipe import describe, find_task
from regard.errors import SettingsError
from regard.export import MARK, check_export
from regard.files import write_atomically
from regard.models import build, settings_of, size_names
from regard.pages import render_page
from regard.registry import TASKS
from regard.run import CHECKED, Run
from regard.terminal import Command, Parser, show_note, show_table, show_title
from regard.training.plan import amount

if TYPE_CHECKING:
    from regard.models.base import Network

LENGTH, BATCH = 25, 32
"""Tokens per text and texts per training step of --roofline, if they are not given."""
LONGEST, MOST_TOKENS = 2048, 10_000_000
"""Maximum number of tokens per text and of a batch: each step of decoding is counted, which takes some milliseconds."""


def configure(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", nargs="?", help="the run folder")
    parser.add_argument(
        "--arch", metavar="NAME", help="an architecture, e.g. transformer-small (list: regard settings model)"
    )
    parser.add_argument(
        "--vocabulary", type=int, default=8000, metavar="N", help="size of the vocabulary (default: 8000)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    cost = parser.add_argument_group("cost", "of training and of decoding, for --arch")
    cost.add_argument(
        "--roofline", action="store_true", help="predict the times of steps from the speed of this machine, measured"
    )
    cost.add_argument("--length", type=int, metavar="N", help=f"tokens per text (default: {LENGTH})")
    cost.add_argument("--batch", type=int, metavar="N", help=f"texts per training step (default: {BATCH})")
    cost.add_argument("--out", metavar="FILE", help="also write a page (.html) or the data (.json)")


def run(options: argparse.Namespace) -> int:
    if bool(options.run) == bool(options.arch):
        raise SettingsError("info needs either a run folder or --arch NAME: give one of them")
    for name in ("out", "length", "batch"):
        if getattr(options, name) is not None and not options.roofline:
            raise SettingsError(f"--{name} is an option of --roofline; add --roofline")
    if options.roofline:
        return run_roofline(options)
    facts = arch_facts(options.arch, options.vocabulary) if options.arch else run_facts(options.run)
    if options.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
    elif options.arch:
        show_arch(facts)
    else:
        show_card(facts)
    return 0


def run_facts(folder: str) -> dict[str, Any]:
    """The content of card.json, "run" (the folder) and, for an unfinished run, "unfinished" (the step reached)."""
    opened = Run.open(folder)
    facts: dict[str, Any] = {"run": str(opened.folder)}
    states = sorted((opened.folder / "checkpoints").glob("*.json"))
    if states and not opened.is_finished:
        facts["unfinished"] = f'at step {int(states[-1].stem):,}; continue with "regard resume {opened.folder}"'
    return facts | opened.card


def arch_facts(arch: str, vocabulary: int) -> dict[str, Any]:
    """Settings, layers, parameters and FLOPs per token of the preset `arch` with a vocabulary of this size.

    The model is built on the meta device, so that no memory is allocated for weights.
    """
    from regard.models.base import count_active_parameters, count_parameters, summarize
    from regard.training.flops import count_cost

    settings, model = settings_of(arch), _empty_model(arch, vocabulary)
    units = count_cost(model).items()
    return {
        "arch": arch,
        "about": settings.paper(),
        "settings": dataclasses.asdict(settings),
        "layers": summarize(model),
        "parameters": count_parameters(model),
        "active_parameters": count_active_parameters(model),
        "flops": {unit: cost for unit, cost in units if cost and not unit.endswith("pair")},
    }


def _empty_model(arch: str, vocabulary: int) -> Network:
    """A model on the meta device, where tensors have no data."""
    settings = settings_of(arch)
    if vocabulary < 8:
        raise SettingsError(f"--vocabulary must be at least 8, not {vocabulary}")
    import torch

    with torch.device("meta"):
        return build(settings, **{name: 2 if name == "labels" else vocabulary for name in size_names(settings)})


def show_arch(facts: dict[str, Any]) -> None:
    show_title(facts["arch"], facts["about"])
    kind: type = type(settings_of(facts["arch"]))
    texts = describe(kind)
    settings = [(key, str(value), texts[key]) for key, value in facts["settings"].items() if key != "arch"]
    show_table(["setting", "value", "meaning"], settings)
    print()
    layers = []
    for layer in facts["layers"]:
        shapes = " ".join("x".join(map(str, shape)) for shape in layer["shapes"])
        layers.append((layer["name"], f"x{layer['count']}", shapes, f"{layer['parameters']:,}"))
    layers.append(("all", "", "", f"{facts['parameters']:,}"))
    if facts["active_parameters"] < facts["parameters"]:
        layers.append(("active per token", "", "", f"{facts['active_parameters']:,}"))
    show_table(["layer", "", "weights", "parameters"], layers)
    flops = ", ".join(f"{amount(value)}FLOP per {name.replace('_', ' ')}" for name, value in facts["flops"].items())
    print(f"\nforward pass: {flops}; a training step takes three times that")


# `regard info --roofline`


def run_roofline(options: argparse.Namespace) -> int:
    if not options.arch:
        raise SettingsError("--roofline needs --arch NAME")
    length = LENGTH if options.length is None else options.length
    batch = BATCH if options.batch is None else options.batch
    if not 1 <= length <= LONGEST:
        raise SettingsError(f"--length {length}: must be between 1 and {LONGEST:,}")
    if not 1 <= batch * length <= MOST_TOKENS:
        raise SettingsError(f"--batch {batch}: must be between 1 and {MOST_TOKENS // length:,}")
    page = check_page(options.out) if options.out else None
    from regard.training.cost import count_phases
    from regard.training.roofline import measure_roofs, report_costs

    model = _empty_model(options.arch, options.vocabulary)
    costs = count_phases(model, length, batch)
    facts = {"title": options.arch, "arch": options.arch, "length": length, "vocabulary": options.vocabulary}
    facts |= report_costs(costs, measure_roofs())
    if options.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
    else:
        show_roofline(facts)
    if page:
        text = render_page("roofline", facts) if page.suffix == ".html" else json.dumps(facts, indent=1)
        write_atomically(page, text.encode())
        show_note(f"written: {page}")
    return 0


def check_page(name: str) -> Path:
    if Path(name).suffix not in (".html", ".json"):
        raise SettingsError(f"--out {name}: the name must end in .html or .json")
    return Path(name)


def show_roofline(facts: dict[str, Any]) -> None:
    machine = facts["machine"]
    peak, bandwidth = f"{machine['peak'] / 1e9:,.0f} GFLOP/s", f"{machine['bandwidth'] / 1e9:,.0f} GB/s"
    show_title(facts["arch"], f"texts of {facts['length']} tokens, vocabulary {facts['vocabulary']:,}")
    print(f"this machine, {machine['threads']} threads: {peak}, {bandwidth}; ridge {machine['ridge']:.1f} FLOP/byte\n")
    rows = []
    for phase in facts["phases"]:
        predicted, moved = phase["prediction"], f"{amount(phase['bytes'])}B"
        kept = f"{amount(phase['activations'])}B" if phase["activations"] else ""
        counts = (f"{amount(phase['flops'])}FLOP", moved, f"{phase['intensity']:.1f}", kept)
        rows.append((phase["name"], *counts, f"{predicted['seconds'] * 1e3:,.2f} ms", predicted["bound"]))
    show_table(["step", "FLOPs", "moved", "FLOP/byte", "activations", "predicted", "limit"], rows)


def show_card(card: dict[str, Any]) -> None:
    """Print the result of `run_facts`: the facts, then the scores with their signatures (sacreBLEU settings)."""
    task = card.get("task", DataSettings.task)
    if task not in TASKS:  # the task comes from a plugin that is not loaded
        plugins.require(card.get("plugins", ()), card["run"])
    facts: list[tuple[str, str]] = []
    for key, value in card.items():
        if key == "training":
            value = {name: value[name] for name in ("step", "best_step", "seconds", "tokens", "flops", "stopped")}
        if value and key not in ("scores", "plan", "layers"):
            lines = _flat(value).split("\n")
            facts += zip([key, *[""] * (len(lines) - 1)], lines, strict=True)
    scores = [
        (part, label.format(found[name]), found.get("signatures", {}).get(name, ""))
        for part, found in card.get("scores", {}).items()
        for name, label in find_task(task).scores.items()
        if name in found
    ]
    show_title(str(card["run"]))
    show_table([], facts)
    if scores:
        print()
        show_table([], scores)
    if card.get("layers"):
        print()
        numbers = ((layer, *item) for layer, found in card["layers"].items() for item in found.items())
        rows = [(layer, name, _percent(value)) for layer, name, value in numbers]
        show_table(["layer", "", "share of each expert, in %"], rows)


def _percent(shares: Sequence[float] | float) -> str:
    return " ".join(f"{100 * share:.1f}" for share in ([shares] if isinstance(shares, float) else shares))


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{key} {_flat(item)}" for key, item in value.items() if item not in ("", None))
    if isinstance(value, list) and all(isinstance(item, int | str) for item in value):
        return " ".join(map(str, value))
    if isinstance(value, list):
        return "\n".join(_flat(item) for item in value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


# `regard verify`


def configure_verify(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument(
        "--accept", action="store_true", help="store new checksums, if you have changed files of the run yourself"
    )


def run_verify(options: argparse.Namespace) -> int:
    opened = Run.open(options.run)
    if options.accept:
        opened.checksums.accept(CHECKED)
    found = opened.checksums.check_all()
    for mark in sorted(opened.folder.glob(f"*/{MARK}")):
        found |= {f"{mark.parent.name}/{name}": wrong for name, wrong in check_export(mark.parent).items()}
    for name, wrong in found.items():
        print(f"{wrong or 'ok':<8} {name}")
    if not found:
        print(f"{opened.folder}: has no checksums; --accept stores them")
    return 2 if any(found.values()) else 0


COMMANDS = {
    "info": Command(
        "Show the card of a run: data, sizes, cost, scores with signatures. Or the layers of an architecture.",
        configure,
        run,
        examples=(
            "regard info runs/demo",
            "regard info --arch transformer-base --vocabulary 37000",
            "regard info --arch transformer-small --roofline --out roofline.html",
        ),
    ),
    "verify": Command(
        "Compare the files of a run, and of the exports in its folder, with the checksums that were stored when they\n"
        "were written. Prints one line per file; the exit code is 2 if a file is damaged or missing.",
        configure_verify,
        run_verify,
        examples=("regard verify runs/en-de", "regard verify runs/en-de --accept"),
    ),
}
