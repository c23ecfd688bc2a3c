"""Training of chatbots: as for translation, but scored by perplexity, because a context has many good replies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from regard.config import Corpus, DataSettings, Recipe
from regard.data.pairs import Pair
from regard.data.split import Split, plan_split
from regard.errors import SettingsError
from regard.models.base import Network, Seq2Seq
from regard.run import Run
from regard.tasks.bootstrap import Metric, ratio_metric
from regard.tasks.chat import TURN
from regard.tasks.chat.chatbot import Chatbot
from regard.tasks.chat.data import Dialogue, fit, make_pairs, read_dialogues, readable, split_turns
from regard.tasks.seq2seq import PairData, mean_loss
from regard.tasks.training import Json, Log, Scored
from regard.tasks.translate.data import PairExamples
from regard.tasks.translate.evaluate import quick_scores, score_translations
from regard.tasks.translate.training import Sample, TranslateTraining, TranslateTrainUnit
from regard.tasks.translate.translator import Translator
from regard.text.tokenizer import Tokenizer
from regard.text.words import word_texts
from regard.training.distributed import ProcessGroup
from regard.training.loss import perplexity
from regard.training.trainer import Validation


class DialogueExamples(PairExamples):
    """Pairs of context and reply. All pairs of a conversation are in the same part: training, validation or test."""

    test_has_loss = True

    def __init__(self, data: DataSettings, seed: int, context_turns: int):
        self._fit: Callable[[str], str] | None = None
        self.context_turns = context_turns
        super().__init__(data, seed)

    def held_out(self, part: str) -> list[Pair]:
        return list(map(self._fitted, super().held_out(part)))

    def corpora(self) -> Iterator[tuple[Iterator[Pair], float]]:
        return ((map(self._fitted, pairs), weight) for pairs, weight in super().corpora())

    def texts(self) -> Iterator[str]:
        """Texts to train the vocabulary on: the last turn of each context, and the reply.

        Earlier turns of a context are left out, because they are in other pairs.
        """
        return (text for source, target in self.train() for text in (split_turns(source)[-1], target))

    def fit_to(self, source: Tokenizer, max_length: int) -> None:
        """From now on, shorten contexts to `max_length` tokens of `source`. The oldest turns are dropped first."""
        self._fit = partial(fit, size=lambda text: len(source.encode(text)), most=max_length)

    @property
    def smallest_limit(self) -> int:
        """The number of replies in the longest conversation, which must fit into a held-out part."""
        return max((len(dialogue.replies) for dialogue in self._dialogues()), default=1)

    def _fitted(self, pair: Pair) -> Pair:
        return pair if self._fit is None else Pair(self._fit(pair.source), pair.target)

    def _split(self, valid: int, test: int, seed: int) -> Split:
        # Each reply gets the text of its dialogue, so that all replies of equal dialogues stay in one part.
        pairs = (Pair("\n".join(one.turns), "") for one in self._dialogues() for _ in one.replies)
        return plan_split(pairs, valid, test, seed, where=self.data.train[0].source)

    def _dialogues(self) -> Iterator[Dialogue]:
        return chain.from_iterable(map(read_dialogues, self.data.train))

    def _read(self, corpus: Corpus) -> Iterator[Pair]:
        return (pair for dialogue in read_dialogues(corpus) for pair in make_pairs(dialogue, self.context_turns))


class ChatTrainUnit(TranslateTrainUnit):
    """Provides batches and loss as for translation, and validates by perplexity, BLEU and diversity of replies."""

    def __init__(self, recipe: Recipe, data: PairData, model: Network, group: ProcessGroup | None = None):
        limit = recipe.data.max_length
        whole = replace(recipe.search, max_source_tokens=limit, max_joined_tokens=limit)  # contexts are not cut
        super().__init__(replace(recipe, search=whole), data, model, group)

    def validate(self, model: Seq2Seq) -> Validation:
        """Compute perplexity of all validation replies, and BLEU and distinct-n of greedy replies to the first ones."""
        loss, texts = self.valid_loss(model), self.generate(model)
        references = [pair.target for pair in self.shown]
        scores = {"loss": loss, "perplexity": perplexity(loss)} | quick_scores(texts, references) | diversity(texts)
        return self.validation(scores, texts)

    def readable(self, source: str) -> str:
        return readable(source)


class ChatTraining(TranslateTraining):
    train_unit = ChatTrainUnit
    has_dictionary = False
    result = (
        "perplexity {perplexity:.1f}  distinct-1 {distinct_1:.3f}  distinct-2 {distinct_2:.3f}"
        "  on {sentences:,} replies"
    )

    def check(self, recipe: Recipe) -> None:
        super().check(recipe)
        if recipe.tokenizer.special_tokens[:1] != (TURN,):
            raise SettingsError(
                f'tokenizer.special_tokens must begin with "{TURN}", which separates the turns of a conversation'
            )

    def read(self, recipe: Recipe) -> DialogueExamples:
        return DialogueExamples(recipe.data, recipe.train.seed, recipe.task.context_turns)

    def tune(self, run: Run, data: PairData, log: Log) -> Json:
        return {}  # nothing is tuned: no score compares different good replies

    def score(self, predictor: Chatbot, examples: Sequence[Pair]) -> Scored:
        """Compute perplexity of the reference replies, and BLEU, chrF and distinct-n of the generated replies."""
        translator = predictor.translator
        loss = mean_loss(
            translator.model, translator.source, translator.target, examples, max_length=predictor.max_length
        )
        found = translator.translate([pair.source for pair in examples], retry_failures=False)
        texts, references = [reply.text for reply in found], [pair.target for pair in examples]
        by_reference = score_translations(texts, references, ("bleu", "chrf"))
        scores = {"perplexity": perplexity(loss), **diversity(texts), **by_reference}
        samples = [
            Sample(pair.source, reply.text, pair.target, reply.score)
            for pair, reply in zip(examples, found, strict=True)
        ]
        return Scored(scores, samples, self._perplexity(translator, examples))

    def _perplexity(self, translator: Translator, examples: Sequence[Pair]) -> Metric:
        """The perplexity of the replies, with the loss and the number of tokens of each reply."""
        forced = translator.score([pair.source for pair in examples], [pair.target for pair in examples])
        counts = ((-sum(one.log_probs), len(one.log_probs)) for one in forced)
        return ratio_metric("perplexity", counts, perplexity, lower_is_better=True)

    def notes(self, recipe: Recipe) -> Sequence[str]:
        return ()

    def folder(self, recipe: Recipe) -> Path:
        """The default run folder, named after the architecture, e.g. runs/hran."""
        return Path("runs") / recipe.model.arch


def distinct(texts: Iterable[str], size: int) -> float:
    """Distinct-n (Li et al. 2016), n = `size`: number of different word n-grams in all texts / number of n-grams."""
    ngrams: list[tuple[str, ...]] = []
    for text in texts:
        words = [word.casefold() for word in word_texts(text)]
        ngrams += zip(*(words[start:] for start in range(size)), strict=False)
    return len(set(ngrams)) / len(ngrams) if ngrams else 0.0


def diversity(texts: Sequence[str]) -> dict[str, float]:
    return {"distinct_1": distinct(texts, 1), "distinct_2": distinct(texts, 2)}


TRAINING = ChatTraining()
