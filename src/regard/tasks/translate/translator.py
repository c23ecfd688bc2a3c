"""Translation with torch, in batches of similar length.

`Translator` runs in this process. `Workers` runs several processes with one thread each: for many sentences, this is
faster than one process with many threads.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import torch

from regard import plugins
from regard.config import SearchSettings
from regard.data.batches import in_batches, make_sources
from regard.decoding.beam import BeamState, SearchTree, search_trees
from regard.errors import RegardError, RunError, SettingsError
from regard.models.base import Seq2Seq, count_parameters
from regard.run import CARD, Run, open_together
from regard.system import START_METHOD
from regard.tasks.generation import NEEDS_WORDS, Searcher, SearchInput, check_search, replace_unknown
from regard.tasks.translate.translation import (
    Scripts,
    Translation,
    in_pieces,
    make_translation,
    refuse_long,
    search_with_retries,
    target_scripts,
)
from regard.text.tokenizer import SOS, UNK, Tokenizer

if TYPE_CHECKING:
    from regard.analysis.alignment import AlignmentHeads
    from regard.analysis.trace import Trace
    from regard.tasks.translate.alignment import Aligner
    from regard.tasks.translate.language_model import TargetLanguageModel


class Translator:
    """Translates texts with a trained model or an ensemble of models. `regard.load` makes one from run folders."""

    def __init__(
        self,
        model: Seq2Seq,
        source: Tokenizer,
        target: Tokenizer,
        search: SearchSettings | None = None,
        *,
        others: Sequence[Seq2Seq] = (),
        scripts: Scripts = None,
        alignment: AlignmentHeads | None = None,
        dictionary: Mapping[str, str] | None = None,
        language_model: TargetLanguageModel | None = None,
    ):
        """`source` and `target` are the tokenizers; `others` are further models, which form an ensemble with `model`.

        `scripts` are the writing systems of the target language; a translation in another script gets a flag.
        `alignment` selects the heads of `model` that align words; None means all cross-attention heads. `dictionary`
        translates words that replace unknown words. `language_model` takes part in the search as `search.lm_use` says.
        """
        self.language_model = language_model
        self.model, self.source, self.target = model, source, target
        self.search = search or SearchSettings()
        self.models, self.scripts, self.alignment = (model, *others), scripts, alignment
        self.dictionary = dictionary or {}

    def __repr__(self) -> str:
        size = count_parameters(self.model)
        return f"<Translator: {type(self.model).__name__}, {size:,} parameters, {self.target.size:,} target tokens>"

    def translate(
        self,
        texts: str | Sequence[str],
        *,
        nbest: int = 1,
        prefix: str | Sequence[str] = "",
        tree: bool = False,
        align: bool = False,
        **search: Any,
    ) -> list[Translation]:
        """Translate one text or many, and return the translations in order.

        `nbest` is the number of hypotheses per text, including the best. Each translation begins with `prefix`: one
        string for all texts, or a list with one per text. `tree` records the beam search, `align` adds the word
        alignment. Keywords override `search` settings, e.g. beam_size=1.
        """
        texts = [texts] if isinstance(texts, str) else list(texts)
        settings = replace(self.search, **search)
        check_search(settings, nbest, tree)
        if settings.replace_unknown and self.target.kind != "word":
            raise SettingsError(NEEDS_WORDS)
        if self.language_model:
            self.language_model.check(self.target, settings)
        aligner = self.aligner() if align else None

        def translate(parts: list[str]) -> list[Translation]:
            found = self._translate(parts, prefix, settings, nbest, tree)
            return aligner.add(found, settings.batch_tokens) if aligner else found

        if not (prefix or tree):
            return in_pieces(texts, self.source, settings, translate)
        for number, text in enumerate(texts, 1):
            advice = f"with a {'prefix' if prefix else 'search tree'}, it cannot be cut into pieces; shorten it"
            refuse_long(text, self.source, settings.max_source_tokens, f"text {number}", advice)
        return translate(texts)

    def score(self, texts: Sequence[str], targets: Sequence[str], **search: Any) -> list[Translation]:
        """Score given translations by forced decoding; return each target as a `Translation` of its text."""
        settings = replace(self.search, **search)
        searcher = Searcher(self.models, self.source, self.target, settings)
        pairs = zip(texts, self.source.encode_many(list(texts)), self.target.encode_many(list(targets)), strict=True)
        inputs = [SearchInput(text, ids, tuple(target)) for text, ids, target in pairs]
        results = [Translation(one.text, "") for one in inputs]
        for indices in in_batches([len(one.ids) + len(one.target) + 1 for one in inputs], settings.batch_tokens):
            batch = [inputs[index] for index in indices]
            for index, hypothesis in zip(indices, searcher.force(batch), strict=True):
                results[index] = make_translation(texts[index], self.target, self.scripts, hypothesis)
        return results

    @overload
    def trace(self, text: str, target: str | None = None) -> Trace: ...

    @overload
    def trace(self, text: list[str], target: list[str] | None = None) -> list[Trace]: ...

    def trace(self, text: str | list[str], target: str | list[str] | None = None) -> Trace | list[Trace]:
        """Record attention and hidden states of the model while it generates `target` or, if None, its own translation.

        If a beam search finds its own translation, the trace includes the search tree. For a list of texts, with or
        without a list of targets, a list of traces is returned. Of an ensemble, only the first model is recorded.
        """
        from regard.analysis.trace import record_trace
        from regard.tasks.translate.alignment import text_side

        if not isinstance(text, str):
            targets = [None] * len(text) if target is None else target
            if isinstance(targets, str) or len(targets) != len(text):
                raise SettingsError(f"trace: {len(text)} texts need a list of {len(text)} targets, or no targets")
            return [self.trace(one, other) for one, other in zip(text, targets, strict=True)]
        if not (target is None or isinstance(target, str)):
            raise SettingsError("trace: one text, but a list of targets; give a text and a target, or two lists")
        if target is None:
            by_beam = self.search.beam_size > 1 and not self.search.sample
            [translation] = self._translate([text], "", self.search, 1, tree=by_beam)
            ids = {token: id for id, token in reversed(list(enumerate(self.target.tokens)))}
            target_ids, tree = [ids[token] for token in translation.tokens], translation.tree
            target_side = text_side(self.target, translation.text, target_ids)
        else:
            target_ids, tree = self.target.encode(target), None
            target_side = text_side(self.target, target)
        device = self.model.output.weight.device
        return record_trace(
            self.model,
            make_sources([self.source.encode(text)], self.source.pad).to(device),
            torch.tensor([[SOS, *target_ids]], device=device),
            text_side(self.source, text),
            target_side,
            tree,
        )

    def aligner(self) -> Aligner:
        """Return an object that aligns words by cross-attention; of an ensemble, only the first model is used."""
        from regard.tasks.translate.alignment import Aligner

        return Aligner(self.model, self.source, self.target, self.alignment)

    def _translate(
        self, texts: list[str], prefix: str | Sequence[str], settings: SearchSettings, nbest: int, tree: bool = False
    ) -> list[Translation]:
        """Translate each text as a whole, without cutting it; retry failed outputs if `settings.retry_failures`."""
        prefixes = [prefix] * len(texts) if isinstance(prefix, str) else list(prefix)
        if len(prefixes) != len(texts):
            raise SettingsError(f"{len(prefixes)} prefixes for {len(texts)} texts; give one, or one for each text")
        prefix_ids = list(map(tuple, self.target.encode_many(prefixes)))
        for written, ids in zip(prefixes, prefix_ids, strict=True):
            if UNK in ids and not settings.replace_unknown:
                raise SettingsError(f'the prefix "{written}" contains a word that is not in the vocabulary; change it')
        inputs = list(map(SearchInput, texts, self.source.encode_many(texts), prefix_ids))
        return search_with_retries(inputs, settings, partial(self._search, nbest=nbest, tree=tree))

    def _search(
        self, inputs: Sequence[SearchInput], settings: SearchSettings, nbest: int, tree: bool
    ) -> list[Translation]:
        """Translate tokenized inputs in batches of similar length, and return the results in the order of `inputs`."""
        fused = self.language_model if settings.lm_use == "fusion" else None
        sorting = self.language_model if settings.lm_use == "rerank" else None
        searcher = Searcher(self.models, self.source, self.target, settings, fused.model if fused else None)
        results = [Translation(one.text, "") for one in inputs]
        for indices in in_batches([len(one.ids) for one in inputs], settings.batch_tokens, skip_empty=True):
            batch = [inputs[index] for index in indices]
            states: list[BeamState] = []
            wanted = settings.beam_size if sorting else nbest
            found = searcher.search(batch, wanted, states.append if tree else None)
            if sorting:
                found = sorting.rerank(found, self.target, settings)
            trees: Sequence[SearchTree | None] = [None] * len(batch)
            if tree:
                trees = search_trees(states, len(batch), self.target.token)
            for index, hypotheses, grown in zip(indices, found, trees, strict=True):
                made = make_translation(inputs[index].text, self.target, self.scripts, *hypotheses[:nbest])
                results[index] = replace(made, tree=grown)
            if settings.replace_unknown:
                self._replace_unknown(results, indices, [hypotheses[0].tokens for hypotheses in found])
        return results

    def _replace_unknown(self, results: list[Translation], indices: list[int], outputs: list[tuple[int, ...]]) -> None:
        """Replace each UNK in translations by a translation of the source word with the most attention, or its copy.

        Changes `results`. `indices` are the positions in `results` of the translations of a batch, and `outputs` are
        their token ids.
        """
        unknown = [(index, output) for index, output in zip(indices, outputs, strict=True) if UNK in output]
        if unknown:
            sources = [results[index].source for index, _ in unknown]
            written = [output for _, output in unknown]
            texts = replace_unknown(self.models, self.source, self.target, sources, written, self.dictionary)
            for (index, _), text in zip(unknown, texts, strict=True):
                results[index] = replace(results[index], text=text)


def load(run: str | Path | Run, *others: str | Path, lm: str | Path = "") -> Translator:
    """Load the model of a run folder. With `others` (runs with the same vocabulary), all form an ensemble.

    `lm`: the run folder of a language model of the target language, for shallow fusion or reranking.
    """
    from regard.analysis.alignment import read_choice

    folder, *members = open_together(run, *others)
    prior = None
    if lm:
        from regard.tasks.translate.language_model import open_language_model

        prior = open_language_model(lm)
    return Translator(
        folder.load_model(),
        *folder.tokenizers,
        folder.recipe.search,
        others=[member.load_model() for member in members],
        scripts=target_scripts(folder),
        alignment=read_choice(folder.card.get("alignment"), str(folder.folder / CARD)),
        dictionary=folder.dictionary,
        language_model=prior,
    )


# Worker processes

_translator: Translator | RegardError | None = None
"""In a worker process, the opened run, or the error that was raised when it was opened."""


class Workers:
    """Translates in `count` processes; each opens `runs` (several form an ensemble), and the language model `lm`.

    `hint` is appended to the error message if a process is killed. Without a language model, `lm` is empty.
    """

    def __init__(self, runs: Sequence[str | Path], count: int, hint: str = "", lm: str | Path = ""):
        self.count, self.hint = count, hint
        self._pool = ProcessPoolExecutor(
            count,
            multiprocessing.get_context(START_METHOD),
            initializer=_start_worker,
            initargs=(tuple(map(str, runs)), str(lm), os.getpid(), plugins.files()),
        )

    def translate(self, texts: Sequence[str], **options: Any) -> list[Translation]:
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        shares = [order[number :: self.count] for number in range(self.count)]  # each has short and long texts
        results: dict[int, Translation] = {}
        try:
            waiting = [self._pool.submit(_work, [texts[place] for place in share], options) for share in shares]
            for share, found in zip(shares, waiting, strict=True):
                results |= zip(share, found.result(), strict=True)
        except BrokenProcessPool:
            raise RunError(f"one of {self.count} worker processes was killed (out of memory?){self.hint}") from None
        return [results[place] for place in range(len(texts))]

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _start_worker(runs: tuple[str, ...], lm: str, parent: int, plugin_files: Sequence[str]) -> None:
    global _translator
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    torch.set_num_threads(1)
    try:
        for file in plugin_files:
            plugins.load(file)
        _translator = load(*runs, lm=lm)
    except RegardError as error:  # would break the pool if raised here; `_work` raises it
        _translator = error


def _end_with(parent: int) -> None:
    """Exit this worker when the process with the id `parent` has ended. (A killed parent cannot stop its workers.)"""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _work(texts: list[str], options: dict[str, Any]) -> list[Translation]:
    assert _translator is not None
    if isinstance(_translator, RegardError):
        raise _translator
    return _translator.translate(texts, **options)
