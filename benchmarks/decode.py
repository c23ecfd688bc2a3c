"""Translation with the same weights: Regard's engines, CTranslate2 called directly, Hugging Face's `generate`.

The model is a Transformer of 3+3 layers, width 256, post-norm (supported by all of them), trained by `regard train` on
Multi30k English to German in the first run; beam 5, length penalty 1, the 1,000 sentences of test_2016_flickr, from
text to text. The sides take turns, and the best round of each counts. Only Regard translates loops again; it is
measured with and without this. Then: the latency of one sentence, the start-up time of the command, how many texts
equal those of `generate`, and the effect of int8 on BLEU.

    make bench-decode       (python benchmarks/decode.py [--data DIR] [--rounds 5] [--minutes 15] [--run RUN])
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from sacrebleu import corpus_bleu

from multi30k import OUT, add_folder, check_folder, read_pairs
from regard.run import Run
from regard.system import usable_cores
from regard.tasks.generation import Searcher, SearchInput
from regard.tasks.translate.engine import engine_folder, load_fast, open_engine
from regard.tasks.translate.translator import Translator, Workers, load
from regard.text.tokenizer import EOS, Tokenizer

TEST = "test_2016_flickr"
BEAM, TIE = 5, 1e-4
FOLDER = OUT / "decode"
Texts = Callable[[list[str]], list[str]]


def train(data: Path, run: Path, minutes: float) -> None:
    """Train the model that all sides use."""
    files = [f"--{side}={data / file}" for side, file in (("source", "train.en"), ("target", "train.de"))]
    files += [f"--valid-{side}={data / file}" for side, file in (("source", "val.en"), ("target", "val.de"))]
    command = [sys.executable, "-m", "regard", "train", *files, "--arch", "transformer-small"]
    command += ["--set", "model.norm=post", "--set", "model.positional_encoding=sinusoidal"]
    command += ["--set", "train.warmup_steps=300"]
    subprocess.run([*command, "--minutes", str(minutes), "--out", str(run)], check=True)


class Generate:
    """The exported run in Hugging Face's MarianMTModel; sentences of similar length are batched together."""

    def __init__(self, folder: Path, tokenizer: Tokenizer, batch: int = 32):
        os.environ["HF_HUB_OFFLINE"] = "1"
        from transformers import MarianMTModel
        from transformers.utils import logging

        logging.set_verbosity_error()  # it warns about its limits at every batch

        self.model = MarianMTModel.from_pretrained(folder).eval()
        self.tokenizer, self.batch = tokenizer, batch

    @torch.inference_mode()
    def ids(self, texts: list[str], *, one_length: bool = False, **options: Any) -> list[list[int]]:
        """Return the output tokens of each text. With `one_length`, a batch has only sources of the same length."""
        sources, pad = self.tokenizer.encode_many(texts), self.tokenizer.pad
        found: list[list[int]] = [[]] * len(texts)
        order = sorted(range(len(texts)), key=lambda place: len(sources[place]))
        while order:
            places = order[: self.batch]
            if one_length:
                places = [place for place in places if len(sources[place]) == len(sources[places[0]])]
            order = order[len(places) :]
            longest = max(len(sources[place]) for place in places) + 1
            rows = [[*sources[place], EOS] + [pad] * (longest - len(sources[place]) - 1) for place in places]
            ids = torch.tensor(rows)
            made = self.model.generate(
                input_ids=ids, attention_mask=(ids != pad).long(), num_beams=BEAM, length_penalty=1.0,
                max_new_tokens=2 * (longest - 1) + 10, do_sample=False, **options,
            )  # fmt: skip
            for place, row in zip(places, made[:, 1:].tolist(), strict=True):
                found[place] = row[: row.index(EOS)] if EOS in row else [token for token in row if token != pad]
        return found

    def __call__(self, texts: list[str]) -> list[str]:
        return [self.tokenizer.decode(ids) for ids in self.ids(texts)]


class ByHand:
    """CTranslate2 as in its documentation: tokens in, tokens out."""

    def __init__(self, folder: Path, kind: str, tokenizer: Tokenizer, batch: int, *, workers: int, threads: int = 1):
        import ctranslate2

        self.translator = ctranslate2.Translator(
            str(folder), compute_type=kind, inter_threads=workers, intra_threads=threads
        )
        self.tokenizer, self.batch = tokenizer, batch
        self.place = {token: id for id, token in enumerate(tokenizer.tokens)}

    def __call__(self, texts: list[str]) -> list[str]:
        tokens = [[self.tokenizer.tokens[id] for id in ids] for ids in self.tokenizer.encode_many(texts)]
        found = self.translator.translate_batch(tokens, beam_size=BEAM, length_penalty=1.0, max_batch_size=self.batch)
        return [self.tokenizer.decode([self.place[token] for token in result.hypotheses[0]]) for result in found]


def texts_by(translate: Callable[..., Any], **options: Any) -> Texts:
    """Convert `translate` of Regard to a function from texts to texts."""
    return lambda texts: [answer.text for answer in translate(texts, beam_size=BEAM, length_penalty=1.0, **options)]


def rounds(sides: dict[str, Texts], texts: list[str], count: int) -> dict[str, float]:
    """Sentences per second of each side in its best round."""
    best = dict.fromkeys(sides, 0.0)
    for number in range(count):
        for name, side in sides.items():
            began = time.perf_counter()
            side(texts)
            best[name] = max(best[name], len(texts) / (time.perf_counter() - began))
        print(f"round {number + 1} of {count}: " + "  ".join(f"{name} {best[name]:.0f}" for name in sides), flush=True)
    return best


def latency(sides: dict[str, Texts], texts: list[str]) -> dict[str, float]:
    """Return the median time of each side for one sentence, in milliseconds; the sides take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for text in texts:
        for name, side in sides.items():
            began = time.perf_counter()
            side([text])
            seconds[name].append(time.perf_counter() - began)
    return {name: 1000 * statistics.median(found) for name, found in seconds.items()}


def cold_start(run: Path, engine: str, text: str) -> float:
    """Seconds of `regard translate` on one sentence, from the shell: the best of five, modules compiled as pip does."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "regard", "translate", str(run), "--engine", engine]
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run(command, input=text, text=True, check=True, capture_output=True, env=environment)
        best = min(best, time.perf_counter() - began)
    return best


def agreement(translator: Translator, peer: Generate, texts: list[str]) -> dict[str, Any]:
    """How many texts equal those of `generate`, and the difference of scores for the others."""
    theirs = peer.ids(texts, one_length=True, early_stopping=True)
    ours = translator.translate(texts, beam_size=BEAM, length_penalty=1.0, stop="beam-full", retry_failures=False)
    differ = [place for place, ids in enumerate(theirs) if translator.target.decode(ids) != ours[place].text]
    gaps = []
    if differ:
        searcher = Searcher(translator.models, translator.source, translator.target, translator.search)
        sources = translator.source.encode_many([texts[place] for place in differ])
        jobs = [
            SearchInput(texts[place], ids, tuple(theirs[place])) for place, ids in zip(differ, sources, strict=True)
        ]
        forced = searcher.force(jobs)
        gaps = [abs(other.score - ours[place].score) for place, other in zip(differ, forced, strict=True)]
    return {
        "same": 1 - len(differ) / len(texts), "differ": len(differ), "ties": sum(gap <= TIE for gap in gaps),
        "gaps": gaps,
    }  # fmt: skip


def export(run: Path, to: str, out: Path, *more: str) -> None:
    """Run `regard export` into the folder `out`, which is replaced."""
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "regard", "export", str(run), "--to", to, "--out", str(out), *more]
    subprocess.run(command, check=True, capture_output=True)


def report(found: dict[str, Any]) -> None:
    """Print the tables."""
    speed, single = found["sentences_per_second"], found["milliseconds"]
    print(f"\n{'beam 5, 1,000 sentences':38}{'sentences/s':>12}{'BLEU':>8}")
    for name, value in speed.items():
        print(f"{name:38}{value:12.0f}{found['bleu'].get(name, float('nan')):8.2f}")
    print(f"\n{'one sentence':38}{'ms':>12}")
    for name, value in single.items():
        print(f"{name:38}{value:12.1f}")
    print(f"\n{'cold start':38}{'s':>12}")
    for name, value in found["cold_start"].items():
        print(f"{name:38}{value:12.2f}")
    same = found["agreement"]
    print(f"\nsame text as generate: {100 * same['same']:.1f} %; of {same['differ']} others {same['ties']} are ties")
    hand = max(speed[name] for name in speed if name.startswith("CTranslate2 int8"))
    full = max(speed[name] for name in speed if name.startswith("CTranslate2 float32"))
    quick = min(single[name] for name in single if name.startswith("CTranslate2"))
    print(
        f"torch engine: {speed['regard torch'] / speed['generate']:.2f} x generate, "
        f"{speed['regard torch'] / full:.2f} x CTranslate2 float32\n"
        f"auto: {speed['regard auto'] / hand:.2f} x CTranslate2 int8 by hand; "
        f"one sentence {single['regard auto'] - quick:+.1f} ms"
    )


def sides_of(run: Path, translator: Translator, workers: Workers, peer: Generate) -> dict[str, Texts]:
    """All sides that translate the whole file."""
    tokenizer, two = translator.source, usable_cores()
    folders = {kind: engine_folder(Run.open(run), kind) for kind in ("int8", "float32")}  # type: ignore[arg-type]
    fast = load_fast(Run.open(run))
    sides: dict[str, Texts] = {  # the same work for all: the others do not translate loops again
        "generate": peer,
        "regard torch": texts_by(workers.translate, retry_failures=False),
        "regard torch, loops tried again": texts_by(workers.translate),
        "regard torch, exact stop": texts_by(workers.translate, stop="exact", retry_failures=False),
        "regard auto": texts_by(fast.translate, retry_failures=False),
        "regard auto, loops tried again": texts_by(fast.translate),
    }
    for kind, folder in folders.items():
        for batch in (16, 32):
            sides[f"CTranslate2 {kind}, batch {batch}"] = ByHand(folder, kind, tokenizer, batch, workers=two)
    return sides


def main() -> None:
    """Train if needed, then measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_folder(parser)
    parser.add_argument("--run", type=Path, default=FOLDER / "run", help="decode this run instead of training one")
    parser.add_argument("--minutes", type=float, default=15.0, help="minutes of training")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    check_folder(options.data)
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not options.run.exists():
        train(options.data, options.run, options.minutes)
    for kind in ("int8", "float32"):
        open_engine(Run.open(options.run), kind)  # type: ignore[arg-type]
    export(options.run, "marian", FOLDER / "marian")
    pairs = read_pairs(options.data, TEST)
    texts, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    translator = load(options.run)
    peer, workers = Generate(FOLDER / "marian", translator.source), Workers([options.run], usable_cores())
    sides = sides_of(options.run, translator, workers, peer)
    found: dict[str, Any] = {"bleu": {}}
    for name, side in sides.items():  # warm up, and score once
        found["bleu"][name] = corpus_bleu(side(texts), [references]).score
    found["sentences_per_second"] = rounds(sides, texts, options.rounds)
    workers.close()
    alone = {name: sides[name] for name in ("regard auto", "generate")}
    int8 = engine_folder(Run.open(options.run), "int8")
    for threads in (1, 2):
        name = f"CTranslate2 int8, {threads} thread{'s' * (threads > 1)}"
        alone[name] = ByHand(int8, "int8", translator.source, 1, workers=1, threads=threads)
    alone["regard torch"] = texts_by(translator.translate)
    found["milliseconds"] = latency(alone, texts[:100])
    found["cold_start"] = {engine: cold_start(options.run, engine, texts[0]) for engine in ("auto", "torch")}
    found["agreement"] = agreement(translator, peer, texts)
    (OUT / "decode.json").write_text(json.dumps(found, indent=1))
    report(found)


if __name__ == "__main__":
    main()
