"""Tagging: sentences in, a label for every word out, with the spans that labels mark and what decided if asked for."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.config import Recipe
from regard.data.batches import in_batches
from regard.data.store import Sentences
from regard.errors import RunError
from regard.models import base
from regard.run import Run
from regard.tasks.tag import TagSettings
from regard.tasks.tag.data import TaggedSentence, encode_words, make_words, stretches
from regard.tasks.tag.scores import TagScores, score_tags, type_of
from regard.tasks.tag.spans import Scheme, all_labels, find_scheme, find_spans, merge, rewrite
from regard.tasks.tag.words import treebank_words
from regard.text.tokenizer import EOS, SOS, UNK, Tokenizer

__all__ = ["TaggedSpan", "TaggedText", "Tagger", "load"]

LIKELIEST = 3
"""Labels of a word that an explanation names."""
LONGEST_EXPLAINED = 100
"""Words; of a longer sentence it is not computed what each does for each."""
HIDDEN = [SOS, UNK, EOS]
"""The pieces of a word that is hidden."""


class LabelScheme:
    """The labels that a model has learnt, and those that it answers with: of spans, only some schemes tell the ends."""

    def __init__(self, learnt: Sequence[str], settings: TagSettings):
        self.learnt = tuple(learnt)
        self.scheme: Scheme = "plain" if find_scheme([learnt]) == "plain" else settings.scheme
        """Of the answers."""
        merged = [merge(label, self.scheme) for label in learnt]
        self.labels = all_labels(merged, self.scheme)
        """Those of the answers."""
        self.number = {label: place for place, label in enumerate(self.labels)}
        self.merge_LK = torch.zeros(len(learnt), len(self.labels), dtype=torch.float64)
        """1 where a learnt label is one of the answers'."""
        self.merge_LK[range(len(learnt)), [self.number[label] for label in merged]] = 1.0

    def merged(self, counts: Sequence[int]) -> dict[str, int]:
        """How often each label of the answers is among learnt ones that were counted; none that is never there."""
        sums = (torch.tensor(counts, dtype=torch.float64) @ self.merge_LK).long().tolist()
        return {label: count for label, count in zip(self.labels, sums, strict=True) if count}

    def answer(self, path: Sequence[int]) -> list[str]:
        """The labels to give for a path of learnt ones."""
        return list(rewrite([self.learnt[number] for number in path], self.scheme))


class SentenceTags(NamedTuple):
    """Labels of a sentence's words, and how probable each is."""

    tags: list[str]
    sure: list[float]
    others: list[dict[str, float]]
    """The likeliest labels of each word with their probabilities, if they were asked for."""


@torch.no_grad()
def tag_sentences(
    model: base.TaggerModel,
    sentences: Sequence[Sequence[str]],
    tokenizer: Tokenizer,
    settings: TagSettings,
    labelling: LabelScheme,
    likeliest: int = 0,
) -> list[SentenceTags]:
    """Label any number of sentences, each with at least one word, in their order; similar lengths are read together."""
    encoded = encode_words(sentences, tokenizer, settings)
    parts = [
        (number, stretch)
        for number, words in enumerate(encoded)
        for stretch in stretches(len(words), settings.max_words)
    ]
    answers = [SentenceTags([], [], []) for _ in sentences]
    found: list[SentenceTags] = [answers[0]] * len(parts) if answers else []
    for places in in_batches([stretch.end - stretch.start for _, stretch in parts], settings.batch_words):
        chosen = [encoded[number][stretch.start : stretch.end] for number, stretch in (parts[one] for one in places)]
        for place, answer in zip(places, _answer(model, chosen, tokenizer.pad, labelling, likeliest), strict=True):
            found[place] = answer
    for (number, stretch), answer in zip(parts, found, strict=True):
        kept = slice(stretch.first - stretch.start, stretch.last - stretch.start)
        whole = answers[number]
        whole.tags.extend(answer.tags[kept])
        whole.sure.extend(answer.sure[kept])
        whole.others.extend(answer.others[kept])
    return answers


def _answer(
    model: base.TaggerModel, sentences: Sequence[Sentences], pad: int, labelling: LabelScheme, likeliest: int
) -> list[SentenceTags]:
    batch = make_words(sentences, pad).to(model.output.weight.device)
    logits_BTL = model(batch)
    paths_BT = model.crf.best(logits_BTL, batch.mask_BT).tolist()
    shares_BTK = (model.crf.marginals(logits_BTL, batch.mask_BT).cpu() @ labelling.merge_LK).tolist()
    answers = []
    for row, count in enumerate(map(len, sentences)):
        tags, shares_TK = labelling.answer(paths_BT[row][:count]), shares_BTK[row][:count]
        sure = [shares[labelling.number[tag]] for tag, shares in zip(tags, shares_TK, strict=True)]
        others = [
            dict(heapq.nlargest(likeliest, zip(labelling.labels, shares, strict=True), key=itemgetter(1)))
            for shares in shares_TK
        ]
        answers.append(SentenceTags(tags, sure, others if likeliest else []))
    return answers


NOTHING = SentenceTags([], [], [])


class TaggedSpan(NamedTuple):
    """Words that are one thing."""

    type: str
    text: str
    start: int
    """First character in the text of the sentence."""
    end: int
    first: int
    """First word."""
    last: int
    """The word after the last one."""
    probability: float
    """Of the label of its least sure word."""


@dataclass(frozen=True)
class TaggedText:
    """A sentence and the labels of its words. It becomes JSON once, and everything that shows it draws that."""

    text: str
    tokens: tuple[str, ...]
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]
    """Of each word's label, over all labellings of the sentence."""
    spans: tuple[TaggedSpan, ...]
    """None where labels are plain, such as parts of speech."""
    top_labels: tuple[dict[str, float], ...] | None = None
    """The likeliest labels of each word, when an explanation was asked for."""
    influence: tuple[tuple[float, ...], ...] | None = None
    """For each word, what every word of the sentence does for the log-probability of its label, when asked for."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON. What explains is there only when it was asked for."""
        made: dict[str, Any] = {
            "text": self.text,
            "tokens": list(self.tokens),
            "tags": list(self.tags),
            "probabilities": list(self.probabilities),
            "spans": [span._asdict() for span in self.spans],
        }
        if self.top_labels is not None:
            made["top_labels"] = list(self.top_labels)
        if self.influence is not None:
            made["influence"] = [list(row) for row in self.influence]
        return made


Sentence = str | Sequence[str]
"""A text, which is divided into words; or the words."""


class Tagger:
    """A trained model with its tokenizer and labels. `regard.load` makes one from a run folder."""

    def __init__(
        self,
        model: base.TaggerModel,
        tokenizer: Tokenizer,
        labels: Sequence[str],
        recipe: Recipe,
        clitics: Sequence[str] = (),
    ):
        """`labels` are those that the model has learnt; `clitics` ("n't") the training data has as words."""
        self.model, self.tokenizer, self.recipe, self.clitics = model, tokenizer, recipe, tuple(clitics)
        self.labelling = LabelScheme(labels, recipe.task)
        self.labels, self.scheme = self.labelling.labels, self.labelling.scheme

    def __repr__(self) -> str:
        size = sum(parameter.numel() for parameter in self.model.parameters())
        return f"<Tagger: {type(self.model).__name__}, {size:,} parameters, {len(self.labels)} labels>"

    def tag(self, sentences: str | Sequence[Sentence], *, explain: bool = False) -> list[TaggedText]:
        """Label the words of one text or of many sentences, given back in order. `explain` adds what decided."""
        divided = [self._divide(sentence) for sentence in ([sentences] if isinstance(sentences, str) else sentences)]
        full = [one for one in divided if one.tokens]
        answers = iter(self._answers([one.tokens for one in full], LIKELIEST if explain else 0))
        tagged = [self._join(one, *(next(answers) if one.tokens else NOTHING)) for one in divided]
        return [self._explain(one) if explain else one for one in tagged]

    def score(self, sentences: Sequence[TaggedSentence]) -> TagScores:
        """Compare with the right labels; those that this run does not know count as mistakes."""
        if not {type_of(tag) for sentence in sentences for tag in sentence.tags} & set(map(type_of, self.labels)):
            known = ", ".join(self.labels[:8])
            raise RunError(f"no label there is known to this run; it knows {known} (is it another tag.column?)")
        right = [rewrite(sentence.tags, self.scheme) for sentence in sentences]
        given = self._answers([sentence.tokens for sentence in sentences])
        return score_tags(right, [one.tags for one in given], self.scheme, [one.sure for one in given])

    @torch.no_grad()
    def influence(self, tokens: Sequence[str], tags: Sequence[str]) -> Tensor:
        """By how much the log-probability of each word's label (row) falls when a word (column) is hidden, [T, T]."""
        [encoded] = encode_words([tokens], self.tokenizer, self.recipe.task)
        variants = [encoded, *([*encoded[:place], HIDDEN, *encoded[place + 1 :]] for place in range(len(encoded)))]
        number_T1 = torch.tensor([[self.labelling.number[tag]] for tag in tags])
        surprise_VT = torch.zeros(len(variants), len(encoded))
        for places in in_batches([len(encoded)] * len(variants), self.recipe.task.batch_words):
            batch = make_words([variants[place] for place in places], self.tokenizer.pad)
            batch = batch.to(self.model.output.weight.device)
            learnt_VTL = self.model.crf.marginals(self.model(batch), batch.mask_BT).cpu()
            given_VT = (learnt_VTL @ self.labelling.merge_LK).gather(2, number_T1.expand(len(places), -1, -1))[:, :, 0]
            surprise_VT[places] = -given_VT.clamp_min(torch.finfo(torch.float64).tiny).log().float()
        return (surprise_VT[1:] - surprise_VT[:1]).t()

    def _divide(self, sentence: Sentence) -> _Divided:
        if isinstance(sentence, str):
            found = treebank_words(sentence, self.clitics)
            places = tuple((word.start, word.end) for word in found)
            return _Divided(sentence, tuple(word.text for word in found), places)
        tokens = tuple(sentence)
        return _Divided(" ".join(tokens), tokens, tuple(_places(tokens)))

    def _answers(self, sentences: Sequence[Sequence[str]], likeliest: int = 0) -> list[SentenceTags]:
        return tag_sentences(self.model, sentences, self.tokenizer, self.recipe.task, self.labelling, likeliest)

    def _join(
        self, sentence: _Divided, tags: list[str], sure: list[float], others: list[dict[str, float]]
    ) -> TaggedText:
        text, tokens, places = sentence
        spans = []
        for kind, first, last in find_spans(tags) if self.scheme != "plain" else ():
            start, end = places[first][0], places[last - 1][1]
            spans.append(TaggedSpan(kind, text[start:end], start, end, first, last, min(sure[first:last])))
        return TaggedText(text, tokens, tuple(tags), tuple(sure), tuple(spans), tuple(others) if others else None)

    def _explain(self, tagged: TaggedText) -> TaggedText:
        if not tagged.tokens or len(tagged.tokens) > min(LONGEST_EXPLAINED, self.recipe.task.max_words):
            return replace(tagged, top_labels=tagged.top_labels or ())
        found_TT = self.influence(tagged.tokens, tagged.tags)
        return replace(tagged, influence=tuple(tuple(row) for row in found_TT.tolist()))


class _Divided(NamedTuple):
    text: str
    tokens: tuple[str, ...]
    places: tuple[tuple[int, int], ...]


def _places(tokens: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where words stand that are joined by spaces."""
    start = 0
    for token in tokens:
        yield start, start + len(token)
        start += len(token) + 1


def load(run: str | Path, *others: str | Path) -> Tagger:
    """Open a run folder for tagging."""
    opened = Run.open(run).require("tag")
    if others:
        raise RunError(f"{others[0]}: taggers do not join in an ensemble; give one run")
    model = opened.load_network()
    assert isinstance(model, base.TaggerModel)
    return Tagger(model, opened.tokenizers[0], opened.labels, opened.recipe, opened.card.get("clitics", ()))
