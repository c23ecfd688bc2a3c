"""`regard export`: a run for other programs."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import get_args

from regard.config import Corpus
from regard.data.pairs import Pair, read_corpus
from regard.errors import RunError, SettingsError
from regard.export import FORMATS, require_exportable
from regard.run import Run
from regard.tasks.translate.engine import Quantization, engine_folder

MEASURED = 1000
"""Sentences that tell the loss."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Write a run in the format of another program: CTranslate2 (fast on a CPU), Marian as transformers of Hugging\n"
        "Face keep it, or ONNX.\n\n"
        "  regard export runs/en-de --to ctranslate2 --quantization int8\n"
        "  regard export runs/en-de --to marian --out marian-en-de"
    )
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("--to", required=True, choices=tuple(FORMATS), help="the format")
    parser.add_argument("--out", metavar="DIR", help="the folder to make (default: one in the run folder)")
    parser.add_argument(
        "--quantization", choices=get_args(Quantization), help="of CTranslate2's weights (default: float32)"
    )
    parser.add_argument(
        "--source",
        metavar="FILE",
        help="sentences to measure what quantization costs (default: what the run has kept)",
    )
    parser.add_argument("--target", default="", metavar="FILE", help="their translations")


def run(options: argparse.Namespace) -> int:
    """Export."""
    if options.quantization and options.to != "ctranslate2":
        raise SettingsError("--quantization is for --to ctranslate2; the other formats keep float32")
    if options.source and options.quantization in (None, "float32"):
        raise SettingsError("--source measures what --quantization int8 or int16 costs; without one it has no use")
    opened = Run.open(options.run).require("translate", "chat")
    require_exportable(opened.recipe, options.to, where=opened.folder)
    quantization: Quantization = options.quantization or "float32"
    home = engine_folder(opened, quantization) if options.to == "ctranslate2" else opened.folder / options.to
    folder = Path(options.out) if options.out else home

    from regard.export.folder import exporting, refuse_taken

    refuse_taken(folder)  # told before anything is loaded
    judges = _judges(opened, options) if quantization != "float32" else []
    with nullcontext() if options.out else exporting(opened):
        _export(opened, options.to, folder, quantization)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder}: {options.to}, {size / 1e6:.1f} MB")
    if quantization != "float32":
        from regard.tasks.translate.engine import quantization_loss

        known = quantization_loss(opened, folder, quantization, judges) if judges else None
        print(known or "give --source and --target to see what quantization costs")
    return 0


def _export(run: Run, format: str, folder: Path, quantization: Quantization) -> None:
    if format == "ctranslate2":
        from regard.export.ctranslate2 import convert_run

        convert_run(run, folder, quantization)
    elif format == "marian":
        from regard.export.marian import export_marian

        export_marian(run, folder, print)
    else:
        from regard.export.onnx import export_onnx

        export_onnx(run, folder)


def _judges(run: Run, options: argparse.Namespace) -> list[Pair]:
    """The pairs that were given; else those that the run has kept; else the first of its own files still there."""
    if not options.source and (kept := run.held_out()):
        return kept
    data = run.recipe.data
    own = (*data.test, *data.valid)
    for corpus in [Corpus(options.source, options.target)] if options.source else own:
        if options.source or Path(corpus.source).is_file():
            return list(islice(read_corpus(corpus, data.source_language, data.target_language), MEASURED))
    return []


# `regard import`: a model made elsewhere becomes a run folder.


def configure_import_(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Make a run folder of a published model, which every command then takes: Marian's, e.g. those of OPUS-MT, in\n"
        "the form of Hugging Face transformers (config.json, model.safetensors or pytorch_model.bin, source.spm,\n"
        "target.spm, vocab.json). No code in it runs.\n\n"
        "  regard import marian opus-mt-en-de --out runs/opus-en-de"
    )
    parser.add_argument("format", choices=("marian",), help="the format")
    parser.add_argument("folder", metavar="DIR", help="the folder of the model")
    parser.add_argument("--out", metavar="RUN", help="the run folder to make (default: runs/ and the name of DIR)")


def run_import_(options: argparse.Namespace) -> int:
    """Import."""
    folder = Path(options.folder)
    if not folder.is_dir():
        raise RunError(f"{folder}: there is no such folder")
    out = Run.refuse_existing(options.out or Path("runs") / folder.resolve().name)

    from regard.export.marian_import import import_marian

    made = import_marian(folder, out, print)
    print(f'the run is in {made.folder}; try "regard translate {made.folder}"')
    return 0
