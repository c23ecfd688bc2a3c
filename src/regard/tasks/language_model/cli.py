"""`regard write` writes texts with a language model; `regard evaluate` and `regard score` measure given texts."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from regard.errors import SettingsError
from regard.files import chunks, read_input_lines, read_lines
from regard.run import Run
from regard.tasks.texts import configure_texts, texts_of
from regard.terminal import (
    Command,
    Parser,
    add_set,
    add_setting,
    for_people,
    printable,
    progress,
    search_settings,
    show_table,
)

CHUNK = 512
"""Number of texts that are scored together."""


def configure_write(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument(
        "beginning", metavar="TEXT|FILE|-", nargs="?", default="",
        help="the beginning of a text, a file with one beginning per line, or - for standard input (default: empty)",
    )  # fmt: skip
    parser.add_argument("--count", type=int, default=1, metavar="N", help="texts per beginning (default 1)")
    parser.add_argument(
        "--max-tokens", type=int, dest="search.max_length_extra", metavar="N", help="maximum number of tokens to write"
    )
    add_setting(parser, "--temperature", "search.temperature", "X")
    add_setting(parser, "--top-k", "search.top_k", "N")
    add_setting(parser, "--top-p", "search.top_p", "X")
    add_setting(parser, "--seed", "search.seed", "N")
    add_setting(parser, "--beam", "search.beam_size", "N")
    add_set(parser, "search.repetition_penalty=1.2")
    parser.add_argument("--json", action="store_true", help="print one JSON object per beginning")
    parser.epilog = "regard settings search lists all search settings."


def run_write(options: argparse.Namespace) -> int:
    opened = Run.open(options.run).require("language-model")
    search = search_settings(options, opened.recipe.search)
    if options.count < 1:
        raise SettingsError(f"--count must be at least 1, not {options.count}")
    beginnings = [options.beginning]
    if options.beginning == "-":
        beginnings = list(read_input_lines())
    elif 0 < len(options.beginning) < 256 and Path(options.beginning).is_file():
        beginnings = list(read_lines(options.beginning))
    from regard.tasks.language_model.generator import load

    generator = load(opened.folder)
    if for_people() and len(beginnings) == options.count == 1 and not options.json and "beam_size" not in search:
        for piece in generator.stream(beginnings[0], **search):
            print(printable(piece), end="", flush=True)
        print()
        return 0
    for text in generator.write(beginnings, nbest=options.count, **search):
        if options.json:
            print(json.dumps(text.as_dict(), ensure_ascii=False))
        else:
            print(*(one.text for one in (text, *text.alternatives)), sep="\n")
    return 0


def configure_evaluate(parser: Parser) -> None:
    configure_texts(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def run_evaluate(options: argparse.Namespace) -> int:
    opened, texts = Run.open(options.run).require("language-model"), texts_of(options)
    from regard.tasks.language_model.generator import load
    from regard.tasks.text_scores import TextScore, sum_scores

    generator = load(opened.folder)
    scores: list[TextScore] = []
    with progress("texts", len(texts)) as advance:
        for some in chunks(texts, CHUNK):
            scores += generator.score(some)
            advance(len(some))
    result = sum_scores(scores).as_dict() | {"texts": len(texts)}
    if options.json:
        print(json.dumps(result))
        return 0
    rows = [
        ("perplexity per token", f"{result['perplexity']:.2f}", f"{result['tokens']:,} tokens"),
        ("perplexity per word", f"{result['word_perplexity']:.2f}", f"{result['words']:,} words and ends of texts"),
        ("perplexity per character", f"{result['character_perplexity']:.3f}", f"{result['characters']:,} characters"),
        ("bits per byte", f"{result['bits_per_byte']:.3f}", f"{result['bytes']:,} bytes"),
    ]
    show_table(["", "", f"on {len(texts):,} texts"], rows)
    return 0


def configure_score(parser: Parser) -> None:
    configure_texts(parser)
    parser.add_argument("--json", action="store_true", help="print JSON lines, with log-probabilities of tokens")


def run_score(options: argparse.Namespace) -> int:
    opened, texts = Run.open(options.run).require("language-model"), texts_of(options)
    from regard.tasks.language_model.generator import load

    generator = load(opened.folder)
    if not options.json:
        print("log-probability\tper token\tperplexity\ttext")
    for some in chunks(texts, CHUNK):
        for text, score in zip(some, generator.score(some), strict=True):
            total, figures = -score.negative_log_likelihood, score.as_dict()
            if options.json:
                tokens = [(generator.tokenizer.token(one.id), one.log_prob) for one in generator.predict_tokens(text)]
                found = {"text": text, "log_probability": total, **figures, "token_log_probs": tokens}
                print(json.dumps(found, ensure_ascii=False))
            else:
                each = f"{total:.4f}\t{-figures['loss']:.4f}\t{figures['perplexity']:.2f}"
                print(f"{each}\t{printable(text)}")
        sys.stdout.flush()
    return 0


COMMANDS = {
    "write": Command(
        "Write texts with a language model, or continue given beginnings. Tokens are sampled; --temperature 0 takes\n"
        "the most probable token each time, --beam searches for the most probable text.",
        configure_write,
        run_write,
        examples=(
            "regard write runs/news 'The president'",
            "regard write runs/news --count 5 --temperature 0.8 --seed 7",
            "regard write runs/news beginnings.txt --max-tokens 40 --json",
        ),
    ),
    "evaluate": Command(
        "How well a language model predicts the texts of a file: perplexity per token, word and character, bits per\n"
        "byte. All but the first can be compared between models with different vocabularies.",
        configure_evaluate,
        run_evaluate,
        examples=("regard evaluate runs/news --source test.txt",),
    ),
    "score": Command(
        "Score given texts: for each text its log-probability, the mean per token, and its perplexity per token.",
        configure_score,
        run_score,
        examples=("regard score runs/news --source candidates.txt", "regard score runs/news --json < candidates.txt"),
    ),
}
