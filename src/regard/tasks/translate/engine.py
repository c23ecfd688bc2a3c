"""Translation with CTranslate2. Torch is imported only to convert a run.

`Engine` runs a converted model on token ids, `FastTranslator` translates text as `Translator` does, `open_fast` chooses
between these two. Scores are those of our own search: the sum of log-probabilities divided by length ** penalty, with
the end token counted. CTranslate2 stops when a given number of hypotheses is finished; for `stop = "exact"`, this
number is larger than any search can reach.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from regard.config import SearchSettings
from regard.data.pairs import Pair
from regard.errors import ModelError, SettingsError, UnwritableError
from regard.export import check_export, export_run, exporting, fingerprint, folder_name, read_mark, require_exportable
from regard.export.ctranslate2 import LONGEST, obstacle
from regard.export.ctranslate2 import Quantization as Quantization
from regard.run import Run
from regard.system import usable_cores
from regard.tasks.translate.translation import (
    Scripts,
    Translation,
    in_pieces,
    make_translation,
    search_with_retries,
    target_scripts,
)
from regard.text.tokenizer import EOS, SOS, Tokenizer

if TYPE_CHECKING:
    from ctranslate2 import TranslationResult

Log = Callable[[str], None]
BATCH = 32
"""Sentences per batch. Larger batches are not faster, because each worker has one thread."""
EngineName = Literal["auto", "torch", "ctranslate2"]
SUPPORTED = {"beam_size", "length_penalty", "stop", "min_length", "max_length_ratio", "max_length_extra",
             "no_repeat_ngram_size"}  # fmt: skip
"""Search settings that CTranslate2 supports."""
OUTSIDE = {"retry_failures", "max_source_tokens", "long_lines", "max_joined_tokens", "batch_tokens"}
"""Settings of retries, long texts and batches, which are handled outside the engine."""
DEPENDENT = {"temperature", "top_k", "top_p", "epsilon_cutoff", "seed", "diversity_penalty", "ensemble_average",
             "lm_weight", "lm_use"}  # fmt: skip
"""Settings that have an effect only with `sample`, `beam_groups`, an ensemble or a language model, which need torch."""


class EngineHypothesis(NamedTuple):
    """One translation that CTranslate2 returns: token ids, score, whether it ended, log-probabilities."""

    tokens: tuple[int, ...]
    """Token ids, without the end token."""
    score: float
    ended: bool
    """False if the length limit cut the output off."""
    log_probs: tuple[float, ...] = ()
    """Log-probabilities of the tokens and, if `ended`, of the end token; empty unless requested."""


class Engine:
    """Runs a converted model in CTranslate2. `folder`: the model; `workers`: threads, 0 for one per core.

    Each worker translates its own batches on one core, which is faster than one batch on all cores.
    """

    def __init__(self, folder: Path, source: Tokenizer, target: Tokenizer, *, workers: int = 0):
        import ctranslate2

        self.source, self.target = source, target
        mark, workers = read_mark(folder), workers or usable_cores()
        kind = mark.get("quantization", "float32")
        if kind not in ctranslate2.get_supported_compute_types("cpu"):  # int16 often is not
            kind = "float32"
        try:
            self._translator = ctranslate2.Translator(
                str(folder), compute_type=kind, inter_threads=workers, intra_threads=1
            )
        except (RuntimeError, ValueError) as error:
            raise ModelError(f"{folder}: CTranslate2 cannot open the model ({error}); export the run again") from None
        self.longest = int(mark.get("longest", LONGEST))
        self._ids = {token: id for id, token in enumerate(target.tokens)}
        self._never = [[target.token(SOS)]]  # tokens that are never generated; UNK has its own option

    def translate(
        self, sources: Sequence[Sequence[int]], longest: Sequence[int], **search: Any
    ) -> list[list[EngineHypothesis]]:
        """Return the hypotheses of each source sentence, best first; arguments as in `translate_unordered`."""
        found = dict(self.translate_unordered(sources, longest, **search))
        return [found[place] for place in range(len(sources))]

    def translate_unordered(
        self,
        sources: Sequence[Sequence[int]],
        longest: Sequence[int],
        *,
        beam_size: int = 5,
        penalty: float = 1.0,
        stop: Literal["exact", "beam-full"] = "exact",
        hypotheses: int = 1,
        no_repeat_ngram_size: int = 0,
        min_length: int = 0,
    ) -> Iterator[tuple[int, list[EngineHypothesis]]]:
        """Yield the index of each source sentence and its `hypotheses` best outputs, as soon as they are found.

        `sources` are token ids. `longest` has the maximum length of each output, including the end token; `min_length`
        is the minimum length without it. Scores are log-probabilities divided by length ** `penalty`.
        """
        if sources and (most := max(map(len, sources)) + 1) > self.longest:
            raise ModelError(
                f"a sentence has {most} tokens, more than the {self.longest} positions of the exported model; shorten "
                f"it, or set search.max_source_tokens below {self.longest}, so that long lines are split"
            )
        longest = [min(limit, self.longest) for limit in longest]
        exact = stop == "exact"
        options = {
            "beam_size": beam_size,
            "length_penalty": penalty,
            "patience": float(self.longest if exact else 1),
            "no_repeat_ngram_size": no_repeat_ngram_size,
            "min_decoding_length": min_length,
        }
        cut_short: list[list[int]] = []
        # An exact search always runs to the limit of its batch, so all sentences of a batch need the same limit.
        batches = _by_length(sources, longest, one_limit=exact)
        for batch, results in self._run(batches, sources, longest, options):
            shared = max(longest[place] for place in batch)
            for place, result in zip(batch, results, strict=True):
                # A batch has the largest limit of its sentences. Outputs above their own limit are made again.
                if longest[place] < shared and max(map(len, result.hypotheses)) >= longest[place]:
                    cut_short.append([place])
                else:
                    yield place, self._read(result, hypotheses)
        for [place], [result] in self._run(cut_short, sources, longest, options):
            yield place, self._read(result, hypotheses)

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """For each pair, return the log-probability of each target token and, last, of the end token."""
        pairs = _spell(sources, self.source), _spell(targets, self.target)
        return [result.log_probs for result in self._translator.score_batch(*pairs, max_batch_size=BATCH)]

    def _run(
        self,
        batches: Sequence[Sequence[int]],
        sources: Sequence[Sequence[int]],
        longest: Sequence[int],
        search: Mapping[str, Any],
    ) -> Iterator[tuple[Sequence[int], list[TranslationResult]]]:
        """Send all batches to CTranslate2, then yield each batch with its results.

        A batch is a list of indices of `sources`. `longest`: maximum length of each output; `search`: further options.
        """
        limits = [max(longest[place] for place in batch) for batch in batches]
        pending = [
            self._translator.translate_batch(
                _spell([sources[place] for place in batch], self.source),
                # CTranslate2 refuses a minimum length above the limit.
                **{**search, "min_decoding_length": min(search["min_decoding_length"], limit)},
                num_hypotheses=search["beam_size"],  # all: the longest shows whether the search reached a limit
                max_decoding_length=limit,
                max_input_length=0,
                disable_unk=True,
                suppress_sequences=self._never,
                return_end_token=True,  # counted in the length, as in our own search
                return_scores=True,
                asynchronous=True,
            )
            for batch, limit in zip(batches, limits, strict=True)
        ]
        for batch, results in zip(batches, pending, strict=True):
            yield batch, [result.result() for result in results]

    def _read(self, result: TranslationResult, hypotheses: int) -> list[EngineHypothesis]:
        found = []
        for tokens, score in zip(result.hypotheses[:hypotheses], result.scores[:hypotheses], strict=True):
            ids = tuple(self._ids[token] for token in tokens)
            ended = ids[-1:] == (EOS,)
            found.append(EngineHypothesis(ids[:-1] if ended else ids, score, ended))
        return found


def _spell(sentences: Sequence[Sequence[int]], tokenizer: Tokenizer) -> list[list[str]]:
    return [[tokenizer.tokens[id] for id in ids] for ids in sentences]


def open_engine(run: Run, quantization: Quantization = "int8", *, workers: int = 0, log: Log | None = None) -> Engine:
    """Open a run in CTranslate2. Converts the model first if there is no conversion of the present weights.

    `workers`: number of threads; 0: one per core.
    """
    require_exportable(run.recipe, "ctranslate2", where=run.folder)
    folder = engine_folder(run, quantization)
    if not _is_current(folder, run, log):
        if not os.access(run.folder, os.W_OK):
            # Checked before a long conversion.
            raise UnwritableError(f"{folder}: the model converted for CTranslate2 cannot be written (no permission)")
        with exporting(run):
            if not _is_current(folder, run):
                export_run(run, "ctranslate2", folder, quantization=quantization)
                if log and quantization != "float32":
                    how = f"regard export {run.folder} --to ctranslate2 --quantization {quantization}"
                    log(f'converted for CTranslate2 in {quantization}; "{how}" measures the effect on BLEU')
    return Engine(folder, *run.tokenizers, workers=workers)


def _is_current(folder: Path, run: Run, log: Log | None = None) -> bool:
    """Whether `folder` contains a CTranslate2 model made from the present weights of the run, and no damaged file."""
    found: dict[str, str] = {}
    checking = Thread(target=lambda: found.update(check_export(folder)))  # checksums of large files, in parallel
    checking.start()
    try:
        same_weights = read_mark(folder).get("fingerprint") == fingerprint(run)
    finally:
        checking.join()
    if not same_weights:
        return False
    wrong = [f"{name} is {problem}" for name, problem in found.items() if problem]
    if wrong and log:
        log(f"{folder}: {', '.join(wrong)}; converting again")
    return not wrong


def engine_folder(run: Run, quantization: Quantization) -> Path:
    return run.folder / folder_name("ctranslate2", {"quantization": quantization})


def _by_length(sources: Sequence[Sequence[int]], longest: Sequence[int], *, one_limit: bool) -> list[list[int]]:
    """Divide sentences of similar length into batches, and return the indices in each batch, longest sentences first.

    `longest`: the maximum length of each output; if `one_limit`, it is the same for all sentences of a batch.
    """
    batches: list[list[int]] = []
    for place in sorted(range(len(sources)), key=lambda place: (-len(sources[place]), -longest[place])):
        full = not batches or len(batches[-1]) == BATCH
        if full or (one_limit and longest[place] != longest[batches[-1][0]]):
            batches.append([])
        batches[-1].append(place)
    return batches


class FastTranslator:
    """Translates texts with CTranslate2. `Translator` does the same with torch."""

    def __init__(self, engine: Engine, search: SearchSettings, scripts: Scripts = None):
        self.engine, self.search, self.scripts = engine, search, scripts

    def translate(
        self, texts: Sequence[str], *, nbest: int = 1, details: bool = False, **search: Any
    ) -> list[Translation]:
        """Translate texts of any length. `search` overrides search settings of the run, e.g. beam_size=1.

        `details` adds the log-probabilities of tokens, which takes more time.
        """
        settings, once = replace(self.search, **search), partial(self._search, nbest=nbest, details=details)
        return in_pieces(
            texts, self.engine.source, settings, lambda pieces: search_with_retries(pieces, settings, once)
        )

    def _search(self, texts: list[str], settings: SearchSettings, nbest: int, details: bool) -> list[Translation]:
        encoded = self.engine.source.encode_many(texts)
        results = [Translation(text, "") for text in texts]
        places = [place for place, ids in enumerate(encoded) if ids]
        sources = [encoded[place] for place in places]
        found: Iterable[tuple[int, list[EngineHypothesis]]] = self.engine.translate_unordered(
            sources,
            [max(int(settings.max_length_ratio * len(ids)) + settings.max_length_extra, 1) for ids in sources],
            beam_size=settings.beam_size,
            penalty=settings.length_penalty,
            stop=settings.stop,
            hypotheses=nbest,
            no_repeat_ngram_size=settings.no_repeat_ngram_size,
            min_length=settings.min_length,
        )
        if details or settings.no_repeat_ngram_size or settings.min_length:
            found = self._scored(sources, list(found), settings, details)
        for number, hypotheses in found:  # meanwhile, the workers translate other sentences
            text = texts[places[number]]
            results[places[number]] = make_translation(text, self.engine.target, self.scripts, *hypotheses)
        return results

    def _scored(
        self,
        sources: Sequence[list[int]],
        found: Sequence[tuple[int, list[EngineHypothesis]]],
        settings: SearchSettings,
        details: bool,
    ) -> Iterator[tuple[int, list[EngineHypothesis]]]:
        """Yield the hypotheses `found` with log-probabilities of tokens (if `details`) and corrected scores.

        `found` has the index of each source and its hypotheses. Scores change only after a search with constraints,
        which forbid some tokens: CTranslate2 renormalizes the probabilities of the other tokens, our scores do not.
        """
        is_constrained = settings.no_repeat_ngram_size > 0 or settings.min_length > 0
        asked = [(sources[number], one.tokens) for number, hypotheses in found for one in hypotheses]
        scores = iter(self.engine.score([ids for ids, _ in asked], [tokens for _, tokens in asked]))
        for number, hypotheses in found:
            scored = []
            for one in hypotheses:
                values = tuple(next(scores)[: len(one.tokens) + one.ended])
                score = sum(values) / len(values) ** settings.length_penalty if is_constrained else one.score
                scored.append(one._replace(score=score, log_probs=values if details else ()))
            yield number, sorted(scored, key=lambda one: -one.score) if is_constrained else scored


def open_fast(
    wanted: EngineName,
    run: Run,
    search: SearchSettings,
    asked: Sequence[str] = (),
    *,
    quantization: Quantization = "int8",
    log: Log | None = None,
) -> FastTranslator | None:
    """Open the run with CTranslate2, or return None if torch is to be used (see `choose_engine`).

    If `wanted` is "auto", the result is also None if the converted model cannot be written into the run folder.
    `asked`: the options on the command line that need torch.
    """
    if choose_engine(wanted, run, search, asked) == "torch":
        return None
    try:
        return load_fast(run, quantization, log)
    except UnwritableError as error:
        if wanted == "ctranslate2":
            raise
        if log:
            log(f"{error}; translating with torch")
        return None


def load_fast(run: Run, quantization: Quantization = "int8", log: Log | None = None) -> FastTranslator:
    """Return a translator that uses CTranslate2; converts the model of the run if necessary (see `open_engine`)."""
    return FastTranslator(open_engine(run, quantization, log=log), run.recipe.search, target_scripts(run))


def choose_engine(wanted: EngineName, run: Run, search: SearchSettings, asked: Sequence[str] = ()) -> EngineName:
    """Return "ctranslate2" or "torch". If `wanted` is "auto", CTranslate2 is used if it supports all settings.

    If "ctranslate2" is `wanted` but does not support the settings, an error is raised. `asked` are the options on the
    command line that need torch. "auto" also chooses torch for `stop = "exact"`, which is slow in CTranslate2, and for
    blocked n-grams and minimum lengths, for which CTranslate2 may find other translations.
    """
    torch_is_better = search.no_repeat_ngram_size or search.min_length or search.stop == "exact"
    if wanted == "torch" or (wanted == "auto" and torch_is_better):
        return "torch"
    # Settings that are in none of the three sets above need torch, unless they have their default values.
    others = [setting for setting in fields(search) if setting.name not in SUPPORTED | OUTSIDE | DEPENDENT]
    changed = [f"search.{setting.name}" for setting in others if getattr(search, setting.name) != setting.default]
    unsupported = [*changed, *asked]
    reason = f"CTranslate2 does not support {unsupported[0]}" if unsupported else obstacle(run.recipe)
    if not reason and not importlib.util.find_spec("ctranslate2"):
        reason = 'CTranslate2 is not installed; pip install "regard[ctranslate2]"'
    if reason and wanted == "ctranslate2":
        raise SettingsError(f"--engine ctranslate2: {reason}; use --engine torch")
    return "torch" if reason else "ctranslate2"


def quantization_loss(run: Run, folder: Path, quantization: Quantization, pairs: Sequence[Pair]) -> str:
    """Return a line of text with BLEU on `pairs` for the quantized model in `folder` and for the float32 model."""
    from regard.tasks.translate.evaluate import score_translations

    search, (source, target) = run.recipe.search, run.tokenizers
    ids = source.encode_many([pair.source for pair in pairs])
    longest = [int(search.max_length_ratio * len(row)) + search.max_length_extra for row in ids]
    bleu = []
    with tempfile.TemporaryDirectory() as place:
        for model in (export_run(run, "ctranslate2", Path(place) / "full", quantization="float32"), folder):
            found = Engine(model, source, target).translate(
                ids, longest, beam_size=search.beam_size, penalty=search.length_penalty, stop="beam-full"
            )
            texts = [target.decode(best.tokens) for [best] in found]
            bleu.append(score_translations(texts, [pair.target for pair in pairs])["bleu"])
    full, small = bleu
    return f"BLEU on {len(pairs):,} sentences: float32 {full:.2f}, {quantization} {small:.2f} ({small - full:+.2f})"
