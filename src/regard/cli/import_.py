"""`regard import`: a model made elsewhere becomes a run folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from regard.errors import RunError
from regard.run import Run


def configure(parser: argparse.ArgumentParser) -> None:
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


def run(options: argparse.Namespace) -> int:
    """Import."""
    folder = Path(options.folder)
    if not folder.is_dir():
        raise RunError(f"{folder}: there is no such folder")
    out = Run.refuse_existing(options.out or Path("runs") / folder.resolve().name)

    from regard.convert.marian_import import import_marian

    made = import_marian(folder, out, print)
    print(f'the run is in {made.folder}; try "regard translate {made.folder}"')
    return 0
