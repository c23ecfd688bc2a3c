"""`regard caption` describes pictures; `regard evaluate` scores the captions of a run on a list of pictures."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.config import Corpus
from regard.data.pictures import PictureSource
from regard.files import chunks
from regard.run import Run
from regard.terminal import Command, Parser, add_search, printable, search_settings, show_table, status

if TYPE_CHECKING:
    from regard.tasks.caption.captioner import Captioner


def configure(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("pictures", metavar="PICTURE", nargs="+", help="a picture, or a folder or ZIP file of pictures")
    parser.add_argument("--language", metavar="CODE", default="", help="language of the captions (default: the first)")
    parser.add_argument("--nbest", type=int, default=1, metavar="N", help="captions per picture (default 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object per picture")
    add_search(parser)


def run(options: argparse.Namespace) -> int:
    opened = Run.open(options.run).require("caption")
    search = search_settings(options, opened.recipe.search)
    predictor = _load(options, opened)
    many = len(options.pictures) > 1 or _is_collection(options.pictures[0])
    for some in chunks(_read(options.pictures, predictor), opened.recipe.task.batch_pictures):
        from numpy import stack

        pixels = stack([one for _, one in some])
        found = predictor.caption_pixels(pixels, options.language, options.nbest, **search)
        for (name, _), caption in zip(some, found, strict=True):
            if options.json:
                print(json.dumps({"picture": name} | caption.as_dict(), ensure_ascii=False))
                continue
            for one in (caption, *caption.alternatives):
                scored = f"{one.score:.4f}\t" if options.nbest > 1 else ""
                print(f"{printable(name)}\t" * many + scored + printable(one.text))
    return 0


def _is_collection(path: str) -> bool:
    return Path(path).is_dir() or Path(path).suffix.lower() == ".zip"


def _read(paths: list[str], predictor: Captioner) -> Iterator[tuple[str, Any]]:
    """Yield name and pixels of all pictures in the given files, folders and ZIP files."""
    for path in paths:
        if not _is_collection(path):
            yield path, predictor.read([path])[0]
            continue
        with PictureSource(path) as source:
            for name in source.names():
                yield name, source.read(name, path, predictor.recipe.pictures)


def _load(options: argparse.Namespace, opened: Run) -> Captioner:
    from regard.tasks.caption.captioner import load

    predictor = load(opened, *options.ensemble)
    predictor.language(options.language)  # an unknown language is reported before anything is computed
    return predictor


def configure_evaluate(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("--source", required=True, metavar="FILE", help="the list: pictures and their captions")
    parser.add_argument("--images", metavar="DIR|ZIP", default="", help="its pictures (default: those of the training)")
    parser.add_argument("--language", metavar="CODE", default="", help="only captions in this language (default: all)")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    add_search(parser)


def run_evaluate(options: argparse.Namespace) -> int:
    opened = Run.open(options.run).require("caption")
    search = search_settings(options, opened.recipe.search)
    predictor = _load(options, opened)
    from regard.tasks.caption.evaluate import evaluate_list

    predictor.recipe = replace(predictor.recipe, search=replace(predictor.recipe.search, **search))
    images = options.images or opened.recipe.pictures.images
    with status("captioning and scoring"):
        scores = evaluate_list(predictor, Corpus(options.source), images, options.language)
    if options.json:
        print(json.dumps(scores, ensure_ascii=False))
        return 0
    by_language = scores.get("by_language", {})
    names = {"chrf": "{:.1f}", "bleu": "{:.1f}", "cider": "{:.2f}"} | {f"recall_{k}": "{:.1%}" for k in (1, 5, 10)}
    rows = [
        [name, *(shown.format(one[name]) for one in (scores, *by_language.values()))] for name, shown in names.items()
    ]
    show_table(["", f"on {scores['pictures']:,} pictures", *by_language], rows)
    return 0


COMMANDS = {
    "caption": Command(
        "Describe pictures: PNG, JPEG, GIF, WebP or BMP files, or all pictures in a folder or ZIP file.",
        configure,
        run,
        examples=(
            "regard caption runs/emoji picture.png",
            "regard caption runs/emoji pictures.zip --language de --json",
            "regard caption runs/emoji picture.png --nbest 5",
        ),
    ),
    "evaluate": Command(
        "Write captions for the pictures of a list, and compare them with those in the list: BLEU, chrF and CIDEr-D.\n"
        "Recall@1, 5 and 10: how often the probability of a caption is highest for its own picture.",
        configure_evaluate,
        run_evaluate,
        examples=("regard evaluate runs/emoji --source test.tsv --images pictures.zip",),
    ),
}
