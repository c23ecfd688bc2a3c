"""`Tagger` labels the words of sentences, with spans, probabilities and explanations."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.config import Recipe
from regard.data.batches import in_batches
from regard.errors import RunError
from regard.models import base
from regard.run import Run
from regard.tasks.tag.conll import TaggedSentence
from regard.tasks.tag.data import encode_words, make_words, windows
from regard.tasks.tag.scores import TagScores, score_tags, type_of
from regard.tasks.tag.settings import TagSettings
from regard.tasks.tag.spans import Scheme, all_labels, find_scheme, find_spans, merge, rewrite
from regard.tasks.tag.words import treebank_words
from regard.text.tokenizer import EOS, SOS, UNK, Tokenizer

LONGEST_EXPLAINED = 100
"""Maximum number of words of a sentence for which the influence between words is computed."""


class LabelScheme:
    """Converts the labels that a model was trained with (BIOES for spans) to the labels that it returns (e.g. BIO)."""

    def __init__(self, learned: Sequence[str], settings: TagSettings):
        self.learned = tuple(learned)
        self.scheme: Scheme = "plain" if find_scheme([learned]) == "plain" else settings.scheme
        merged = [merge(label, self.scheme) for label in learned]
        self.labels = all_labels(merged, self.scheme)
        """The labels that are returned."""
        self.number = {label: place for place, label in enumerate(self.labels)}
        self.merge_LK = torch.zeros(len(learned), len(self.labels), dtype=torch.float64)
        """Matrix of L trained labels and K returned labels: 1 where a label (row) is converted to another (column)."""
        self.merge_LK[range(len(learned)), [self.number[label] for label in merged]] = 1.0

    def merge_counts(self, counts: Sequence[int]) -> dict[str, int]:
        """Convert the counts of the trained labels, in their order, to counts by returned label, without zeros."""
        sums = (torch.tensor(counts, dtype=torch.float64) @ self.merge_LK).long().tolist()
        return {label: count for label, count in zip(self.labels, sums, strict=True) if count}

    def convert(self, path_T: Sequence[int], shares_TK: Sequence[Sequence[float]], top: int) -> list[WordTag]:
        """Make the result for each of T words of a sentence.

        `path_T` has the predicted label of each word, as an index into the trained labels. `shares_TK` has the
        probabilities of the K returned labels; each result has the `top` most probable of them.
        """
        words = []
        tags = rewrite([self.learned[number] for number in path_T], self.scheme)
        for tag, shares_K in zip(tags, shares_TK, strict=True):
            ranked = heapq.nlargest(top, zip(self.labels, shares_K, strict=True), key=itemgetter(1))
            words.append(WordTag(tag, shares_K[self.number[tag]], dict(ranked)))
        return words


class WordTag(NamedTuple):
    """The predicted label of a word and its probability.

    `top_labels` has the most probable labels with their probabilities; empty if they were not requested.
    """

    tag: str
    probability: float
    top_labels: dict[str, float]


class TaggedSpan(NamedTuple):
    """Consecutive words that the predicted labels mark as a unit, e.g. a name or a noun phrase."""

    type: str
    text: str
    start: int
    """Position of the first character in the text."""
    end: int
    first: int
    """Index of the first word."""
    last: int
    """Index of the last word, plus 1."""
    probability: float
    """The lowest probability of the labels of its words."""


@dataclass(frozen=True)
class TaggedText:
    """A sentence and the labels of its words."""

    text: str
    tokens: tuple[str, ...]
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]
    """Marginal probability of the label of each word."""
    spans: tuple[TaggedSpan, ...]
    """Empty if labels do not mark spans, e.g. parts of speech."""
    top_labels: tuple[dict[str, float], ...] | None = None
    """The most probable labels of each word; None if `explain` was false."""
    influence: tuple[tuple[float, ...], ...] | None = None
    """`influence[i][j]`: by how much the log-probability of the label of word i falls if word j is replaced by UNK.
    None if `explain` was false or the sentence is too long."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary for JSON, without fields that are None."""
        facts = {name: value for name, value in vars(self).items() if value is not None}
        made = {name: value if isinstance(value, str) else list(value) for name, value in facts.items()}
        return made | {"spans": [span._asdict() for span in self.spans]}


Sentence = str | Sequence[str]
"""A text, which the tagger divides into words, or a list of words."""


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
        """`labels` are the labels in training. `clitics`, e.g. "n't", become separate words when a text is divided."""
        self.model, self.tokenizer, self.recipe, self.clitics = model, tokenizer, recipe, tuple(clitics)
        self.labeling = LabelScheme(labels, recipe.task)
        self.labels, self.scheme = self.labeling.labels, self.labeling.scheme

    def __repr__(self) -> str:
        size = f"{base.count_parameters(self.model):,} parameters"
        return f"<Tagger: {type(self.model).__name__}, {size}, {len(self.labels)} labels>"

    def tag(self, sentences: str | Sequence[Sentence], *, explain: bool = False) -> list[TaggedText]:
        """Label the words of one text, or of a list of sentences.

        `explain` adds the most probable labels of each word (`top_labels`) and how much each word of the sentence
        contributes to its label (`influence`).
        """
        divided = [self._divide(sentence) for sentence in ([sentences] if isinstance(sentences, str) else sentences)]
        answers = self.answers([tokens for _, tokens, _ in divided], 3 if explain else 0)
        return [self._join(*parts, answer, explain) for parts, answer in zip(divided, answers, strict=True)]

    def score(self, sentences: Sequence[TaggedSentence]) -> TagScores:
        """Label sentences and compare with their correct labels. A correct label unknown to this run is a mistake."""
        if not {type_of(tag) for sentence in sentences for tag in sentence.tags} & set(map(type_of, self.labels)):
            known = f"{len(self.labels)} labels ({', '.join(self.labels[:8])}{', ...' if len(self.labels) > 8 else ''})"
            problem = f"none of the labels in the data is known to this run, which has {known}"
            raise RunError(f"{problem}; give data with these labels in the column tag.column of the recipe")
        right = [rewrite(sentence.tags, self.scheme) for sentence in sentences]
        given = self.answers([sentence.tokens for sentence in sentences])
        tags = [[word.tag for word in one] for one in given]
        return score_tags(right, tags, self.scheme, [[word.probability for word in one] for one in given])

    @torch.no_grad()
    def answers(self, sentences: Sequence[Sequence[str]], top: int = 0) -> list[list[WordTag]]:
        """Label sentences that are divided into words. Each result has the `top` most probable labels (0: none)."""
        settings, labeling, crf = self.recipe.task, self.labeling, self.model.crf
        encoded = encode_words(sentences, self.tokenizer, settings)
        parts = [(row, part) for row, words in enumerate(encoded) for part in windows(len(words), settings.max_words)]
        found: dict[int, list[WordTag]] = {}
        for places in in_batches([window.end - window.start for _, window in parts], settings.batch_words):
            chosen = [encoded[row][window.start : window.end] for row, window in (parts[place] for place in places)]
            batch = make_words(chosen, self.tokenizer.pad).to(self.model.output.weight.device)
            logits_BTL = self.model(batch)
            paths_BT = crf.best(logits_BTL, batch.mask_BT).tolist()
            shares_BTK = (crf.marginals(logits_BTL, batch.mask_BT).cpu() @ labeling.merge_LK).tolist()
            for place, words, path_T, shares_TK in zip(places, chosen, paths_BT, shares_BTK, strict=True):
                found[place] = labeling.convert(path_T[: len(words)], shares_TK[: len(words)], top)
        answers: list[list[WordTag]] = [[] for _ in sentences]
        for place, (row, window) in enumerate(parts):
            answers[row] += found[place][window.first - window.start : window.last - window.start]
        return answers

    @torch.no_grad()
    def influence(self, tokens: Sequence[str], tags: Sequence[str]) -> Tensor:
        """Return how much the log-probability of a word's label falls if another word is replaced by UNK, as [T, T].

        Row i is the word with the label `tags[i]`; column j is the word that is replaced.
        """
        [encoded] = encode_words([tokens], self.tokenizer, self.recipe.task)
        masked = ([*encoded[:place], [SOS, UNK, EOS], *encoded[place + 1 :]] for place in range(len(encoded)))
        variants = [encoded, *masked]
        number_T1 = torch.tensor([[self.labeling.number[tag]] for tag in tags])
        loss_VT = torch.zeros(len(variants), len(encoded))
        for places in in_batches([len(encoded)] * len(variants), self.recipe.task.batch_words):
            chosen = [variants[place] for place in places]
            batch = make_words(chosen, self.tokenizer.pad).to(self.model.output.weight.device)
            learned_VTL = self.model.crf.marginals(self.model(batch), batch.mask_BT).cpu()
            given_VT = (learned_VTL @ self.labeling.merge_LK).gather(2, number_T1.expand(len(places), -1, -1))[:, :, 0]
            loss_VT[places] = -given_VT.clamp_min(torch.finfo(torch.float64).tiny).log().float()
        return (loss_VT[1:] - loss_VT[:1]).t()

    def _divide(self, sentence: Sentence) -> tuple[str, tuple[str, ...], list[tuple[int, int]]]:
        """Divide a text into words, or join a list of words with spaces.

        Returns the text, the words, and the start and end of each word in the text.
        """
        if isinstance(sentence, str):
            found = treebank_words(sentence, self.clitics)
            return sentence, tuple(word.text for word in found), [(word.start, word.end) for word in found]
        starts = accumulate((len(token) + 1 for token in sentence), initial=0)
        places = [(start, start + len(token)) for token, start in zip(sentence, starts, strict=False)]
        return " ".join(sentence), tuple(sentence), places

    def _join(
        self, text: str, tokens: tuple[str, ...], places: list[tuple[int, int]], answer: list[WordTag], explain: bool
    ) -> TaggedText:
        tags, probabilities = tuple(word.tag for word in answer), tuple(word.probability for word in answer)
        spans = []
        for kind, first, last in find_spans(tags) if self.scheme != "plain" else ():
            start, end = places[first][0], places[last - 1][1]
            spans.append(TaggedSpan(kind, text[start:end], start, end, first, last, min(probabilities[first:last])))
        influence = None
        if explain and 0 < len(tokens) <= min(LONGEST_EXPLAINED, self.recipe.task.max_words):
            influence = tuple(tuple(row) for row in self.influence(tokens, tags).tolist())
        top_labels = tuple(word.top_labels for word in answer) if explain else None
        return TaggedText(text, tokens, tags, probabilities, tuple(spans), top_labels, influence)


def load(run: str | Path | Run, *others: str | Path) -> Tagger:
    opened = Run.open(run).require("tag")
    if others:
        raise RunError(f"{others[0]}: taggers cannot form an ensemble; give one run")
    model = opened.load_network()
    assert isinstance(model, base.TaggerModel)
    return Tagger(model, opened.tokenizers[0], opened.labels, opened.recipe, opened.card.get("clitics", ()))
