"""`regard info`: the card of a run, or the inside of an architecture."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

from regard.config import PRESETS
from regard.errors import SettingsError
from regard.recipe import describe, find_preset

SHOWN_OF_TRAINING = ("step", "best_step", "seconds", "tokens", "flops", "stopped")
PAPERS = {
    "transformer": "Attention Is All You Need (Vaswani et al. 2017)",
    "seq2seq": "Sequence to Sequence Learning with Neural Networks (Sutskever et al. 2014)",
    "bahdanau": "Neural Machine Translation by Jointly Learning to Align and Translate (Bahdanau et al. 2015)",
    "luong": "Effective Approaches to Attention-based Neural Machine Translation (Luong et al. 2015)",
    "gnmt": "Google's Neural Machine Translation System (Wu et al. 2016)",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Show the card of a run: data, sizes, scores with signatures, cost. Or the layers of an architecture.\n\n"
        "  regard info runs/demo\n"
        "  regard info --arch transformer-base --vocabulary 37000"
    )
    parser.add_argument("run", metavar="RUN", nargs="?", help="the run folder")
    parser.add_argument("--arch", metavar="NAME", help=f"an architecture: {', '.join(PRESETS)}")
    parser.add_argument(
        "--vocabulary", type=int, default=8000, metavar="N", help="tokens of the architecture's vocabulary"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Show."""
    if bool(options.run) == bool(options.arch):
        raise SettingsError("info needs either a run folder or --arch NAME")
    facts = arch_facts(options.arch, options.vocabulary) if options.arch else run_facts(options.run)
    if options.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
    elif options.arch:
        show_arch(facts)
    else:
        show_card(facts)
    return 0


def run_facts(folder: str) -> dict[str, Any]:
    """The card of a run, with its place."""
    from regard.run import Run

    opened = Run.open(folder)
    return {"run": str(opened.folder), **opened.card}


def arch_facts(arch: str, vocabulary: int) -> dict[str, Any]:
    """Layers, shapes, parameters and arithmetic of an architecture, built without memory for its weights."""
    settings = find_preset(arch)
    if vocabulary < 8:
        raise SettingsError("--vocabulary must be at least 8")
    import torch

    from regard.models import build_model
    from regard.models.base import count_parameters
    from regard.models.summary import summarise
    from regard.training.flops import count_cost

    with torch.device("meta"):
        model = build_model(settings, vocabulary, vocabulary, joint=True)
    cost = count_cost(model)
    return {
        "arch": arch,
        "about": PAPERS[arch.partition("-")[0]],
        "settings": dataclasses.asdict(settings),
        "layers": [dataclasses.asdict(row) for row in summarise(model)],
        "parameters": count_parameters(model),
        "flops": {"source_token": cost.source, "target_token": cost.target},
    }


def show_arch(facts: dict[str, Any]) -> None:
    """Print an architecture."""
    print(f"{facts['arch']}: {facts['about']}\n")
    texts = describe(type(PRESETS[facts["arch"]]))
    width = max(map(len, texts))
    for key, value in facts["settings"].items():
        if key != "arch":
            print(f"  {key:<{width}}  {value!s:<12} {texts[key]}")
    rows = [
        (layer["name"], f"x{layer['count']}", _shapes(layer["shapes"]), f"{layer['parameters']:,}")
        for layer in facts["layers"]
    ]
    rows = [("layer", "", "weights", "parameters"), *rows, ("all", "", "", f"{facts['parameters']:,}")]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    print()
    for name, count, shapes, parameters in rows:
        print(f"  {name:<{widths[0]}}  {count:>{widths[1]}}  {shapes:<{widths[2]}}  {parameters:>{widths[3]}}")
    flops = facts["flops"]
    source, target = flops["source_token"] / 1e6, flops["target_token"] / 1e6
    print(
        f"\n  forward: {source:.1f} MFLOP a source token, {target:.1f} a target token; training takes three times that"
    )


def _shapes(shapes: list[tuple[int, ...]]) -> str:
    return " ".join("x".join(map(str, shape)) for shape in shapes)


def show_card(card: dict[str, Any]) -> None:
    """Print a card."""
    for key, value in card.items():
        if key == "training":
            value = {name: value[name] for name in SHOWN_OF_TRAINING}
        if value and key not in ("scores", "plan"):
            print(f"{key:<12} {_flat(value)}")
    for part, scores in card.get("scores", {}).items():
        for name, label in (("bleu", "BLEU"), ("chrf", "chrF"), ("ter", "TER")):
            print(f"{part:<12} {label:<5}{scores[name]:6.2f}   {scores['signatures'][name]}")


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{key} {_flat(item)}" for key, item in value.items() if item not in ("", None))
    if isinstance(value, list) and all(isinstance(item, int) for item in value):
        return " ".join(map(str, value))
    if isinstance(value, list):
        return "\n             ".join(_flat(item) for item in value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
