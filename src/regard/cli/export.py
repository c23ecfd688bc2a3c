"""`regard export`: a run for other programs."""

from __future__ import annotations

import argparse
import tempfile
from itertools import islice
from pathlib import Path
from typing import get_args

from regard.config import Corpus
from regard.convert.engine import Engine, Quantization, engine_folder
from regard.convert.support import FORMATS, require_exportable
from regard.data.corpus import read_corpus
from regard.errors import SettingsError
from regard.run import Run

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
        help="sentences to measure what quantization costs (default: the run's test or validation data)",
    )
    parser.add_argument("--target", default="", metavar="FILE", help="their translations")


def run(options: argparse.Namespace) -> int:
    """Export."""
    if options.quantization and options.to != "ctranslate2":
        raise SettingsError("--quantization is for --to ctranslate2; the other formats keep float32")
    if options.source and options.quantization in (None, "float32"):
        raise SettingsError("--source measures what --quantization int8 or int16 costs; without one it has no use")
    opened = Run.open(options.run)
    require_exportable(opened.recipe, options.to, where=opened.folder)
    quantization: Quantization = options.quantization or "float32"
    home = engine_folder(opened, quantization) if options.to == "ctranslate2" else opened.folder / options.to
    folder = Path(options.out) if options.out else home

    from regard.convert.folder import refuse_taken

    refuse_taken(folder)  # told before anything is loaded
    if options.to == "ctranslate2":
        from regard.convert.ctranslate2 import convert_run

        convert_run(opened, folder, quantization)
    elif options.to == "marian":
        from regard.convert.marian import export_marian

        export_marian(opened, folder)
    else:
        from regard.convert.onnx import export_onnx

        export_onnx(opened, folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder}: {options.to}, {size / 1e6:.1f} MB")
    if quantization != "float32":
        print(tell_loss(opened, folder, quantization, _test_corpus(opened, options)))
    return 0


def _test_corpus(run: Run, options: argparse.Namespace) -> Corpus | None:
    """What was given, or the first of the run's own files that is still there."""
    if options.source:
        return Corpus(options.source, options.target)
    own = (*run.recipe.data.test, *run.recipe.data.valid)
    return next((corpus for corpus in own if Path(corpus.source).is_file()), None)


def tell_loss(run: Run, folder: Path, quantization: Quantization, corpus: Corpus | None) -> str:
    """BLEU of the quantized model beside that of full precision, both by CTranslate2 with the run's search."""
    if corpus is None:
        return "give --source and --target to see what quantization costs"
    data, search = run.recipe.data, run.recipe.search
    pairs = list(islice(read_corpus(corpus, data.source_language, data.target_language), MEASURED))

    from regard.convert.ctranslate2 import convert_run
    from regard.tasks.evaluate import score_translations

    source, target = run.tokenizers
    ids = source.encode_many([pair.source for pair in pairs])
    longest = [int(search.max_ratio * len(row)) + search.max_extra for row in ids]
    bleu = []
    with tempfile.TemporaryDirectory() as place:
        for model in (convert_run(run, Path(place) / "full", "float32"), folder):
            found = Engine(model, source, target).translate(
                ids, longest, beam=search.beam, penalty=search.length_penalty, stop="enough"
            )
            texts = [target.decode(best.tokens) for [best] in found]
            bleu.append(score_translations(texts, [pair.target for pair in pairs]).bleu)
    full, small = bleu
    return f"BLEU on {len(pairs):,} sentences: float32 {full:.2f}, {quantization} {small:.2f} ({small - full:+.2f})"
