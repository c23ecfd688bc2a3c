"""Translation: raw text in, answers out. How many sentences are run at once is this module's business."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import torch

from regard.analysis.alignment import AlignmentHeads, read_choice
from regard.analysis.trace import Trace, record_trace
from regard.config import SearchSettings
from regard.data.batches import in_batches, make_sources
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.search_tree import SearchTree, SearchTreeRecorder
from regard.errors import SettingsError
from regard.models.base import Seq2Seq
from regard.run import CARD, open_together
from regard.tasks.generation import Searcher, SearchInput, check_search, replace_unknown
from regard.tasks.translate.alignment import Aligner, join_alignments, text_side
from regard.tasks.translate.translation import Alignment, Translation, find_flags, target_scripts, texts_of, try_again
from regard.text.tokenizer import SOS, UNK, Tokenizer
from regard.text.words import cut

# Lines that are longer than a model should be given: cut at sentence ends, translated in pieces, and joined again.


Translate = Callable[[list[str]], list[Translation]]
TOO_LONG = "cut it, or set search.long_lines=split"


def in_pieces(
    texts: Sequence[str], tokenizer: Tokenizer, settings: SearchSettings, translate: Translate
) -> list[Translation]:
    """Translate texts of any length. Most need no cutting, and are passed on as they are."""
    pieces = [pieces_of(text, tokenizer, settings, f"text {number}") for number, text in enumerate(texts, 1)]
    answers = iter(translate([piece for parts in pieces for piece in parts]))
    return [join(text, [next(answers) for _ in parts]) for text, parts in zip(texts, pieces, strict=True)]


def pieces_of(text: str, tokenizer: Tokenizer, settings: SearchSettings, name: str = "the text") -> list[str]:
    """What of a text is translated at a time. `name` is what it is called where long ones are refused."""
    limit = settings.max_source_tokens

    def fits(text: str) -> bool:
        return _within(text, tokenizer, limit)

    def together(text: str) -> bool:
        return _within(text, tokenizer, min(settings.max_joined_tokens or 1, limit))

    if settings.long_lines == "split":
        return cut(text, fits, together) or [text]
    refuse_long(text, tokenizer, limit, name, TOO_LONG)
    return [text]


def refuse_long(text: str, tokenizer: Tokenizer, limit: int, name: str, advice: str) -> None:
    """An error where a text has more tokens than that."""
    if not _within(text, tokenizer, limit):
        size = len(tokenizer.encode(text))
        raise SettingsError(f"{name} has {size:,} tokens, more than search.max_source_tokens = {limit}; {advice}")


def _within(text: str, tokenizer: Tokenizer, most: int) -> bool:
    if len(text.encode(errors="surrogatepass")) <= most:  # no token is shorter than a byte
        return True
    return len(tokenizer.encode(text)) <= most


def join(source: str, parts: Sequence[Translation]) -> Translation:
    """One answer of several. Its score is the mean over their tokens; alternatives are not joined."""
    if len(parts) == 1:
        return parts[0]
    sizes = [len(part.tokens) + 1 for part in parts]
    flags = dict.fromkeys(flag for part in parts for flag in part.flags)
    return Translation(
        source,
        " ".join(part.text for part in parts if part.text),
        sum(part.score * size for part, size in zip(parts, sizes, strict=True)) / sum(sizes),
        tuple(token for part in parts for token in part.tokens),
        tuple(value for part in parts for value in part.log_probs),
        all(part.ended for part in parts),
        (*flags, "split"),
    )


__all__ = ["Translation", "Translator", "load", "texts_of"]

Texts = list[str] | tuple[str, ...]


class Translator:
    """A trained model with its tokenizers, or several models as one. `regard.load` makes one from run folders."""

    def __init__(
        self,
        model: Seq2Seq,
        source: Tokenizer,
        target: Tokenizer,
        search: SearchSettings | None = None,
        *,
        others: Sequence[Seq2Seq] = (),
        scripts: frozenset[str] | None = None,
        alignment: AlignmentHeads | None = None,
    ):
        """`others` join `model` in an ensemble; `scripts` are those that the target language is written in.

        `alignment` says which heads of `model` align words; by default all that look at the source.
        """
        self.model, self.source, self.target = model, source, target
        self.search = search or SearchSettings()
        self.models, self.scripts = (model, *others), scripts
        self.alignment = alignment or AlignmentHeads()

    def __repr__(self) -> str:
        size = sum(parameter.numel() for parameter in self.model.parameters())
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
        """Translate one text or many, given back in order. Keywords override `search` settings, e.g. beam=1.

        A `prefix`, one for all or one for each text, is what the output begins with. `tree` records the beam search,
        `align` says which words render which.
        """
        texts = [texts] if isinstance(texts, str) else list(texts)
        settings = replace(self.search, **search)
        check_search(settings, nbest, tree)
        if settings.replace_unknown and self.target.kind != "word":
            raise SettingsError("search.replace_unknown needs a word vocabulary (tokenizer.kind = word)")
        aligner = Aligner(self.model, self.source, self.target, self.alignment) if align else None
        made: list[Translation] = []

        def answer(parts: list[str]) -> list[Translation]:
            made[:] = self._all(parts, prefix, settings, nbest, tree)
            if aligner:
                made[:] = aligner.add(made, settings.batch_tokens)
            return made

        if prefix or tree:  # these speak of a text as a whole
            for number, text in enumerate(texts, 1):
                advice = f"a {'prefix' if prefix else 'tree'} is of a text as a whole: cut it"
                refuse_long(text, self.source, settings.max_source_tokens, f"text {number}", advice)
            return answer(texts)
        answers = in_pieces(texts, self.source, settings, answer)
        return join_alignments(answers, made) if align else answers

    def _all(
        self, texts: list[str], prefix: str | Sequence[str], settings: SearchSettings, nbest: int, tree: bool = False
    ) -> list[Translation]:
        """Answers, with loops and empty ones tried again."""
        prefixes = [prefix] * len(texts) if isinstance(prefix, str) else list(prefix)
        if len(prefixes) != len(texts):
            raise SettingsError(f"{len(prefixes)} prefixes for {len(texts)} texts; give one for all or one for each")
        begun = list(map(tuple, self.target.encode_many(prefixes)))
        for written, ids in zip(prefixes, begun, strict=True):
            if UNK in ids and not settings.replace_unknown:
                raise SettingsError(f'the prefix "{written}" holds a word that the vocabulary does not know')
        jobs = list(map(SearchInput, texts, self.source.encode_many(texts), begun))
        answers = self._answer(jobs, settings, nbest, tree)
        if not settings.retry_failures:
            return answers
        return try_again(
            answers, settings, lambda places, safer: self._answer([jobs[p] for p in places], safer, nbest, tree)
        )

    def score(self, texts: Sequence[str], targets: Sequence[str], **search: Any) -> list[Translation]:
        """The given targets as answers: what the model thinks of them, had they been its own."""
        settings = replace(self.search, **search)
        searcher = Searcher(self.models, self.source, self.target, settings)
        pairs = zip(texts, self.source.encode_many(list(texts)), self.target.encode_many(list(targets)), strict=True)
        jobs = [SearchInput(text, ids, tuple(target)) for text, ids, target in pairs]
        answers = [Translation(job.text, "", 0.0, (), (), True) for job in jobs]
        for places in in_batches([len(job.ids) + len(job.target) + 1 for job in jobs], settings.batch_tokens):
            batch = [jobs[place] for place in places]
            for place, found in zip(places, searcher.force(batch), strict=True):
                answers[place] = self._make(jobs[place], found)
        return answers

    @overload
    def trace(self, text: str, target: str | None = None) -> Trace: ...

    @overload
    def trace(self, text: Texts, target: Texts | None = None) -> list[Trace]: ...

    def trace(self, text: str | Texts, target: str | Texts | None = None) -> Trace | list[Trace]:
        """Everything that passed in the (first) model while writing `target`, or its own translation.

        That translation brings the tokens that the search chose, and the search itself if it was a beam search.
        For a list of texts, with a list of targets or none, the result is a list of traces.
        """
        if isinstance(text, str):
            if not (target is None or isinstance(target, str)):
                raise SettingsError("one text has one target; give a list of texts for a list of targets")
            return self._trace(text, target)
        targets = [None] * len(text) if target is None else target
        if isinstance(targets, str) or len(targets) != len(text):
            raise SettingsError(f"{len(text)} texts need a list of as many targets, or none")
        return [self._trace(one, other) for one, other in zip(text, targets, strict=True)]

    def _trace(self, text: str, target: str | None) -> Trace:
        if target is None:
            by_beam = self.search.beam_size > 1 and not self.search.sample
            [answer] = self._all([text], "", self.search, 1, tree=by_beam)
            ids = {token: id for id, token in reversed(list(enumerate(self.target.tokens)))}
            target_ids, tree = [ids[token] for token in answer.tokens], answer.tree
            target_side = text_side(self.target, answer.text, target_ids)
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

    def _answer(
        self, jobs: Sequence[SearchInput], settings: SearchSettings, nbest: int, tree: bool
    ) -> list[Translation]:
        """Answers in the order of the jobs, which are run longest first. An empty line has an empty answer."""
        searcher = Searcher(self.models, self.source, self.target, settings)
        answers = [Translation(job.text, "", 0.0, (), (), True) for job in jobs]
        for places in in_batches([len(job.ids) for job in jobs], settings.batch_tokens, skip_empty=True):
            batch = [jobs[place] for place in places]
            recorder = SearchTreeRecorder(len(batch)) if tree else None
            found = searcher.search(batch, nbest, recorder)
            trees: Sequence[SearchTree | None] = recorder.trees(self.target.token) if recorder else [None] * len(batch)
            for place, hypotheses, grown in zip(places, found, trees, strict=True):
                first, *rest = [self._make(jobs[place], hypothesis) for hypothesis in hypotheses[:nbest]]
                answers[place] = replace(first, alternatives=tuple(rest), tree=grown)
            if settings.replace_unknown:
                self._replace_unknown(answers, places, [hypotheses[0].tokens for hypotheses in found])
        return answers

    def _make(self, job: SearchInput, found: Hypothesis) -> Translation:
        text = self.target.decode(found.tokens)
        flags = find_flags(job.text, text, found.ended, self.scripts)
        tokens = tuple(self.target.token(id) for id in found.tokens)
        return Translation(job.text, text, found.score, tokens, found.log_probs, found.ended, flags)

    def _replace_unknown(self, answers: list[Translation], places: list[int], outputs: list[tuple[int, ...]]) -> None:
        """Put source words into the best translations that hold unknown ones."""
        wanted = [(place, output) for place, output in zip(places, outputs, strict=True) if UNK in output]
        if wanted:
            sources = [answers[place].source for place, _ in wanted]
            texts = replace_unknown(self.models, self.source, self.target, sources, [output for _, output in wanted])
            for (place, _), text in zip(wanted, texts, strict=True):
                answers[place] = replace(answers[place], text=text)


def load(run: str | Path, *others: str | Path) -> Translator:
    """Open a run folder for translating and looking inside; several with one vocabulary become an ensemble."""
    folder, *members = open_together(run, *others)
    return Translator(
        folder.load_model(),
        *folder.tokenizers,
        folder.recipe.search,
        others=[member.load_model() for member in members],
        scripts=target_scripts(folder),
        alignment=read_choice(folder.card.get("alignment"), str(folder.folder / CARD)),
    )


# A text as the pieces that are translated, and the way back: lines stay lines, and the space around them is kept.


_LINE = re.compile(r"\S(?:[^\r\n]*\S)?")


class Pieces:
    """A text, cut into lines, and lines that are too long into sentences, as `regard translate` cuts them."""

    def __init__(self, text: str, tokenizer: Tokenizer, settings: SearchSettings):
        self.text = text
        self._lines: list[list[str]] = []
        self._before: list[str] = []  # the space before each line
        end = 0
        for line in _LINE.finditer(text):
            self._before.append(text[end : line.start()])
            self._lines.append(pieces_of(line[0], tokenizer, settings))
            end = line.end()
        self._after = text[end:]

    @property
    def texts(self) -> list[str]:
        """What to translate, in order."""
        return [piece for line in self._lines for piece in line]

    def join(self, answers: Sequence[Translation]) -> Translation:
        """One answer of those to the pieces. Alternatives are kept where there is only one piece, and differ in text:
        other tokens may spell the same.
        """
        if not answers:
            return Translation(self.text, self.text, 0.0, (), (), True)
        if len(answers) == 1:
            one, before = answers[0], self._before[0]
            return self._framed(
                replace(one, alternatives=tuple(self._framed(other, before) for other in one.others)), before
            )
        left = iter(answers)
        lines = [join("", [next(left) for _ in line]) for line in self._lines]
        text = "".join(before + line.text for before, line in zip(self._before, lines, strict=True)) + self._after
        known = [answer.alignment for answer in answers if answer.alignment]
        alignment = Alignment.joined(known) if len(known) == len(answers) else None
        whole = replace(join(self.text, answers), text=text, alignment=alignment)
        if len(lines) == len(answers):  # the lines were given, and none of them was cut
            whole = replace(whole, flags=tuple(flag for flag in whole.flags if flag != "split"))
        return whole

    def _framed(self, answer: Translation, before: str) -> Translation:
        return replace(answer, source=self.text, text=before + answer.text + self._after)
