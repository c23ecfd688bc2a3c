"""CTranslate2 as an engine: token ids in, hypotheses out, and torch never imported.

The search is ours: log-probabilities over what may be written, summed, divided by length ** penalty with the end token
counted. CTranslate2 stops when enough hypotheses have ended; for the exact stop, no number is enough.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, Unpack

from regard.convert.folder import check_export, exporting, fingerprint, read_mark
from regard.data.tokenizer import EOS, SOS, Tokenizer
from regard.errors import ModelError, SettingsError, UnwritableError
from regard.run import Run
from regard.system import usable_cores

if TYPE_CHECKING:
    from types import ModuleType

    from ctranslate2 import TranslationResult

Quantization = Literal["int8", "int16", "float32"]

LONGEST = 1024
"""Positions that an exported model knows, unless it has learned fewer."""
BATCH = 32
"""Sentences a batch: one-thread workers are no faster with more."""


class Options(TypedDict, total=False):
    """How to search."""

    beam: int
    penalty: float
    """Exponent of the length that scores are divided by."""
    stop: Literal["exact", "enough"]
    hypotheses: int
    """How many are wanted of each sentence."""
    no_repeat: int
    """No run of so many tokens stands twice; 0: any may."""
    min_length: int
    """At least so many tokens, the end not counted."""


class Found(NamedTuple):
    """One finished output: its tokens without the end token, its score, and whether it ended by itself."""

    tokens: tuple[int, ...]
    score: float
    """Sum of log-probabilities, the end token's with them, divided by length ** penalty."""
    ended: bool


class Engine:
    """A converted model, run by as many one-thread workers as there are processors: faster than one with many."""

    def __init__(self, folder: Path, source: Tokenizer, target: Tokenizer, *, workers: int = 0):
        ctranslate2 = import_ctranslate2()
        self.source, self.target = source, target
        mark, workers = read_mark(folder), workers or usable_cores()
        try:
            self._translator = ctranslate2.Translator(
                str(folder), compute_type=_compute_type(ctranslate2, mark), inter_threads=workers, intra_threads=1
            )
        except (RuntimeError, ValueError) as error:
            raise ModelError(f"{folder}: CTranslate2 cannot open it ({error}); export the run again") from None
        self.longest = int(mark.get("longest", LONGEST))
        self._ids = {token: id for id, token in enumerate(target.tokens)}
        self._never = [[target.token(SOS)]]  # the unknown token has an option of its own, padding is not there

    def translate(
        self, sources: Sequence[Sequence[int]], longest: Sequence[int], **search: Unpack[Options]
    ) -> list[list[Found]]:
        """The best hypotheses for each sentence, best first. `longest` limits their lengths, the end token counted."""
        found = dict(self.as_they_come(sources, longest, **search))
        return [found[place] for place in range(len(sources))]

    def as_they_come(
        self, sources: Sequence[Sequence[int]], longest: Sequence[int], **search: Unpack[Options]
    ) -> Iterator[tuple[int, list[Found]]]:
        """The same, with the place of the sentence, while the workers go on with the others."""
        if sources and (most := max(map(len, sources)) + 1) > self.longest:
            raise ModelError(
                f"a sentence of {most} tokens is longer than the {self.longest} that CTranslate2 was given"
            )
        longest = [min(limit, self.longest) for limit in longest]
        exact, hypotheses = search.get("stop", "exact") == "exact", search.get("hypotheses", 1)
        options = {
            "beam_size": search.get("beam", 5),
            "length_penalty": search.get("penalty", 1.0),
            "patience": float(self.longest if exact else 1),
            "no_repeat_ngram_size": search.get("no_repeat", 0),
            "min_decoding_length": search.get("min_length", 0),
        }
        cut_short: list[list[int]] = []
        # An exact search always goes to the limit of its batch, so it needs batches of one limit.
        batches = _by_length(sources, longest, one_limit=exact)
        for batch, results in self._run(batches, sources, longest, options):
            shared = max(longest[place] for place in batch)
            for place, result in zip(batch, results, strict=True):
                # A batch shares the limit of its longest sentence. Who reached a limit of its own is run alone.
                if longest[place] < shared and max(map(len, result.hypotheses)) >= longest[place]:
                    cut_short.append([place])
                else:
                    yield place, self._read(result, hypotheses)
        for [place], [result] in self._run(cut_short, sources, longest, options):
            yield place, self._read(result, hypotheses)

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probability of each token of each given target, and last of the end token."""
        pairs = [self._spell(sources, self.source), self._spell(targets, self.target)]
        return [result.log_probs for result in self._translator.score_batch(*pairs, max_batch_size=BATCH)]

    def _run(
        self,
        batches: Sequence[Sequence[int]],
        sources: Sequence[Sequence[int]],
        longest: Sequence[int],
        search: Mapping[str, Any],
    ) -> Iterator[tuple[Sequence[int], list[TranslationResult]]]:
        """All batches at once to the workers, then their answers in turn."""
        limits = [max(longest[place] for place in batch) for batch in batches]
        waiting = [
            self._translator.translate_batch(
                self._spell([sources[place] for place in batch], self.source),
                **{**search, "min_decoding_length": min(search["min_decoding_length"], limit)},  # else it refuses
                num_hypotheses=search["beam_size"],  # all that ended: they tell how far the search went
                max_decoding_length=limit,
                max_input_length=0,
                disable_unk=True,
                suppress_sequences=self._never,
                return_end_token=True,  # counted in the length, as ours is
                return_scores=True,
                asynchronous=True,
            )
            for batch, limit in zip(batches, limits, strict=True)
        ]
        for batch, answers in zip(batches, waiting, strict=True):
            yield batch, [answer.result() for answer in answers]

    def _spell(self, sentences: Sequence[Sequence[int]], tokenizer: Tokenizer) -> list[list[str]]:
        return [[tokenizer.tokens[id] for id in ids] for ids in sentences]

    def _read(self, result: TranslationResult, hypotheses: int) -> list[Found]:
        """The best of them, as ids."""
        found = []
        for tokens, score in zip(result.hypotheses[:hypotheses], result.scores[:hypotheses], strict=True):
            ids = tuple(self._ids[token] for token in tokens)
            ended = ids[-1:] == (EOS,)
            found.append(Found(ids[:-1] if ended else ids, score, ended))
        return found


def open_engine(run: Run, quantization: Quantization = "int8", *, workers: int = 0) -> Engine:
    """The engine of a run. The model is converted into the run folder when it is first asked for, or has changed."""
    convert_if_new(run, quantization)
    return Engine(engine_folder(run, quantization), *run.tokenizers, workers=workers)


def convert_if_new(run: Run, quantization: Quantization, log: Callable[[str], None] | None = None) -> bool:
    """Convert the run, unless a sound conversion of these very weights is there; returns whether it was done.

    Processes that ask at the same time wait for the first and use what it has made. `log` gets a line where a file of
    the conversion is damaged.
    """
    folder = engine_folder(run, quantization)
    if _is_current(folder, run, log):
        return False
    if not os.access(run.folder, os.W_OK):
        raise UnwritableError(f"{folder}: cannot be written (no permission)")  # before a long conversion
    with exporting(run):
        if _is_current(folder, run):
            return False
        from regard.convert.ctranslate2 import convert_run

        convert_run(run, folder, quantization)
    return True


def _is_current(folder: Path, run: Run, log: Callable[[str], None] | None = None) -> bool:
    """Whether the folder holds a conversion of the run's weights, and each file has the content that was written."""
    if read_mark(folder).get("fingerprint") != fingerprint(run):
        return False
    wrong = [f"{name} is {problem}" for name, problem in check_export(folder).items() if problem]
    if wrong and log:
        log(f"{folder}: {', '.join(wrong)}; converting again")
    return not wrong


def engine_folder(run: Run, quantization: Quantization) -> Path:
    """Where a run keeps its converted model."""
    return run.folder / f"ctranslate2-{quantization}"


def _by_length(sources: Sequence[Sequence[int]], longest: Sequence[int], *, one_limit: bool) -> list[list[int]]:
    """The places of the sentences in batches of like length, longest first; all of one limit, if asked for."""
    batches: list[list[int]] = []
    for place in sorted(range(len(sources)), key=lambda place: (-len(sources[place]), -longest[place])):
        full = not batches or len(batches[-1]) == BATCH
        if full or (one_limit and longest[place] != longest[batches[-1][0]]):
            batches.append([])
        batches[-1].append(place)
    return batches


def _compute_type(ctranslate2: ModuleType, mark: Mapping[str, Any]) -> str:
    """That of the weights; where the processor lacks it (int16 mostly), full precision and not a coarser one."""
    wanted = mark.get("quantization", "float32")
    return wanted if wanted in ctranslate2.get_supported_compute_types("cpu") else "float32"


def import_ctranslate2() -> ModuleType:
    """The library, or a line that says how to get it."""
    try:
        import ctranslate2
    except ImportError:
        raise SettingsError('CTranslate2 is not installed; pip install "regard[ctranslate2]"') from None
    return ctranslate2
