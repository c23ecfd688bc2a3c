"""`regard export`: write a run in the format of another program. `regard import`: make a run from a published model."""

from __future__ import annotations

import argparse
import textwrap
from contextlib import nullcontext
from importlib import import_module
from itertools import islice
from pathlib import Path

from regard import hub
from regard.config import Corpus
from regard.config.recipe import find_task
from regard.data.pairs import Pair, read_corpus
from regard.errors import RunError, SettingsError
from regard.export import (
    Option,
    complete_options,
    export_format,
    export_run,
    exporting,
    folder_name,
    import_model,
    refuse_taken,
    require_exportable,
)
from regard.registry import ENGINES, EXPORTS, IMPORTS
from regard.run import Run
from regard.terminal import Command, Parser

MEASURED = 1000
"""Number of sentences on which the effect of quantization is measured."""


def configure(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("--to", required=True, choices=tuple(EXPORTS), help="the format")
    parser.add_argument("--out", metavar="DIR", help="the folder to make (default: a folder in the run folder)")
    for name in _option_names():
        by_format = {to: options[name] for to in EXPORTS if name in (options := export_format(to).OPTIONS)}
        choices = dict.fromkeys(choice for option in by_format.values() for choice in option.choices)
        first: Option = next(iter(by_format.values()))
        text = f"{first.help}, for {', '.join(by_format)}"
        if first.is_flag:
            parser.add_argument(f"--{name}", action="store_const", const="yes", help=text)
        elif first.choices:
            parser.add_argument(f"--{name}", choices=tuple(choices), help=f"{text} (default: {first.choices[0]})")
        else:
            parser.add_argument(f"--{name}", metavar="TEXT", help=text)
    parser.add_argument(
        "--source",
        metavar="FILE",
        help="sentences on which the effect of quantization is measured (default: held-out pairs of the run)",
    )
    parser.add_argument("--target", default="", metavar="FILE", help="translations of the sentences in --source")


def _option_names() -> list[str]:
    return list(dict.fromkeys(option for name in EXPORTS for option in export_format(name).OPTIONS))


def run(options: argparse.Namespace) -> int:
    given = {name: value for name in _option_names() if (value := getattr(options, name.replace("-", "_"))) is not None}
    chosen = complete_options(options.to, given)
    quantization = chosen.get("quantization", "float32")
    if options.source and quantization == "float32":
        raise SettingsError(
            "--source measures the effect of quantization; add --quantization int8 or int16, or leave out --source"
        )
    opened = Run.open(options.run)
    require_exportable(opened.recipe, options.to, where=opened.folder)
    folder = Path(options.out) if options.out else opened.folder / folder_name(options.to, chosen)
    refuse_taken(folder)  # before anything is loaded
    pairs = _pairs_to_measure(opened, options) if quantization != "float32" else []
    with nullcontext() if options.out else exporting(opened):
        export_run(opened, options.to, folder, print, **chosen)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {options.to}, {size / 1e6:.1f} MB")
    if quantization != "float32" and options.to in ENGINES:
        engine = import_module(ENGINES[options.to])
        loss = engine.quantization_loss(opened, folder, quantization, pairs) if pairs else None
        print(loss or "give --source and --target to measure the effect of quantization")
    return 0


def _pairs_to_measure(run: Run, options: argparse.Namespace) -> list[Pair]:
    """Sentence pairs on which the loss of quality by quantization is measured; empty if there are none.

    They are those of --source and --target, else the held-out pairs in the run folder, else those of the first test or
    validation corpus of the recipe whose file exists. Of files, only the first MEASURED pairs are used.
    """
    if not options.source and (kept := run.held_out()):
        return kept
    data = run.recipe.data
    held_out = (corpus for corpus in (*data.test, *data.valid) if Path(corpus.source).is_file())
    corpus = Corpus(options.source, options.target) if options.source else next(held_out, None)
    return list(islice(read_corpus(corpus, data.source_language, data.target_language), MEASURED)) if corpus else []


def configure_import(parser: Parser) -> None:
    parser.add_argument("format", choices=tuple(IMPORTS), help="the format")
    parser.add_argument("folder", metavar="DIR", help="the folder of the model")
    parser.add_argument("--out", metavar="RUN", help="the run folder to make (default: runs/ and the name of DIR)")


def run_import(options: argparse.Namespace) -> int:
    folder = Path(options.folder)
    if not folder.is_dir():
        raise RunError(f"{folder}: there is no such folder; give the folder with the files of the model")
    out = Run.refuse_existing(options.out or Path("runs") / folder.resolve().name)
    made = import_model(options.format, folder, out, print)
    command = find_task(made.recipe.data.task).command
    print(f'the run is in {made.folder}; try "regard {command} {made.folder}"')
    return 0


def configure_pull(parser: Parser) -> None:
    parser.add_argument("address", metavar="hf:OWNER/NAME", help="the address; @REVISION may follow")
    parser.add_argument("--out", metavar="RUN", help="the run folder to make (default: runs/NAME)")


def run_pull(options: argparse.Namespace) -> int:
    out = options.out or Path("runs") / hub.repository_name(options.address)
    made = hub.pull(options.address, out, print)
    command = find_task(made.recipe.data.task).command
    print(f'the run is in {made.folder}; try "regard {command} {made.folder}"')
    return 0


def _import_help() -> str:
    about = (f"{name}: {import_module(IMPORTS[name]).HELP}" for name in IMPORTS)
    needs = "\n".join(textwrap.fill(text, 98, initial_indent="  ", subsequent_indent="    ") for text in about)
    what = "Make a run folder from a published model. Every command accepts the run. No code of the model is executed."
    return f"{what}\n\n{needs}"


COMMANDS = {
    "export": Command(
        "Write a run in the format of another program: CTranslate2 (fast on a CPU), Marian or Pegasus in the layout\n"
        "of Hugging Face transformers, ONNX; or as a folder to publish on a model hub, without your text.",
        configure,
        run,
        examples=(
            "regard export runs/en-de --to ctranslate2 --quantization int8",
            "regard export runs/en-de --to marian --out marian-en-de",
            "regard export runs/en-de --to hub --licence cc-by-4.0 --out publish",
        ),
    ),
    "import": Command(
        _import_help(),
        configure_import,
        run_import,
        examples=(
            "regard import marian opus-mt-en-de --out runs/opus-en-de",
            "regard import marian downloads/opus-mt-de-en",
        ),
    ),
    "pull": Command(
        "Fetch a published run from a model hub. Every command accepts the run. No code is fetched or executed.",
        configure_pull,
        run_pull,
        examples=("regard pull hf:owner/en-de", "regard pull hf:owner/en-de@v2 --out runs/theirs"),
    ),
}
