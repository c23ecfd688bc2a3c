"""The plans of classifiers: settings chosen from the training examples, each with its reason."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from regard.tasks.pictures import PictureFacts, plan_pictures
from regard.tasks.training import Tables
from regard.training.plan import PlannedSetting, choose_batch, choose_learning_rate, choose_length, leave_given

if TYPE_CHECKING:
    from regard.tasks.classify.documents import DocumentFacts
    from regard.tasks.classify.frames.data import SeriesFacts


def make_document_plan(data: DocumentFacts, given: Tables) -> list[PlannedSetting]:
    arch = given.get("model", {}).get("arch", "han")
    choices = list(_choose_settings(data, arch))
    chosen = {choice.name: choice.value for choice in choices}
    longest = given.get("classify", {}).get("max_tokens", chosen["classify.max_tokens"])
    documents = 32 if data.documents >= 2_000 else 16  # per batch; an epoch of few documents needs enough steps
    wanted = documents * min(data.tokens, longest)
    batch, epoch = choose_batch(given, wanted, least=256, examples=data.documents, length=data.tokens, unit="documents")
    growing = "dropout grows: a model that has learned nothing cannot overfit"
    warmup = PlannedSetting("train.regularization_warmup", min(max(2 * epoch, 200), 1500), growing)
    every = min(max(epoch // 2, 50), 2000)
    most = max(12 * epoch, 20 * every)  # a model of a small corpus overfits long before
    choices += [batch, warmup, *choose_length(epoch, validate_every=every, patience=6, max_steps=most)]
    return leave_given(choices, given)


def _choose_settings(data: DocumentFacts, arch: str) -> Iterator[PlannedSetting]:
    is_uneven = data.several or data.rarest < 0.5 / data.labels
    yield from _label_settings(data.labels, is_uneven, data.several)
    wanted = data.long * data.tokens_per_word
    longest = min(max(50 * math.ceil(wanted / 50), 100), 600)
    reason = "19 of 20 documents are shorter" if longest >= wanted else "the middle of longer documents is left out"
    yield PlannedSetting("classify.max_tokens", longest, reason)
    if data.by_words:
        words = data.documents * data.words
        size = int(min(max(12 * math.sqrt(words), 500), 50_000)) // 100 * 100
        count = f"{words / 1e6:.1f} million" if words >= 1e6 else f"{round(words, -3):,.0f}"
        yield PlannedSetting("tokenizer.kind", "word", "attention weights are shown per word")
        yield PlannedSetting("tokenizer.lowercase", True, "the first word of a sentence is the same word")
        yield PlannedSetting("tokenizer.vocab_size", size, f"{count} words: those that occur at least about five times")
    else:
        yield PlannedSetting("tokenizer.kind", "bpe", "subwords: spaces do not divide this text into words")
        yield PlannedSetting("tokenizer.vocab_size", 8000, "few enough that each subword is seen often")
    yield PlannedSetting("model.arch", arch, "attention over words and over sentences, and both can be shown")
    small, large = data.documents < 5_000, data.documents >= 200_000
    if arch == "han":
        reason = f"{data.documents:,} documents"
        yield PlannedSetting("model.embedding_width", 64 if small else 200 if large else 128, reason)
        yield PlannedSetting("model.width", 32 if small else 100 if large else 64, reason)
    dropout = 0.2 if large else 0.5 if arch == "han" else 0.3
    yield PlannedSetting("model.dropout", dropout, "the less data, the more dropout")
    yield from choose_learning_rate(3e-3, 100, 0.2, muon=arch == "transformer-classifier")
    word_dropout = 0.2 if data.words >= 30 else 0.1
    yield PlannedSetting("classify.word_dropout", word_dropout, "so that no single word decides alone")


def make_picture_plan(
    facts: PictureFacts,
    pictures: int,
    given: Tables,
    labels: int,
    rarest: float,
    *,
    several: bool = False,
    images: str = "",
) -> list[PlannedSetting]:
    """The plan for a number of labeled `pictures`; `rarest`: share of the label with the fewest ones.

    `images`: the folder or ZIP file of the pictures, if it is known from the data.
    """
    is_uneven = several or rarest < 0.5 / labels
    shown = list(plan_pictures(facts, given))
    chosen = {choice.name: choice.value for choice in shown} | {
        f"pictures.{key}": value for key, value in given.get("pictures", {}).items()
    }
    height, width = chosen["pictures.size"]
    patches = (height // chosen["pictures.patch_size"]) * (width // chosen["pictures.patch_size"])
    choices = [PlannedSetting("pictures.images", images, "the labels are its subfolders")] if images else []
    choices += [*shown, *_for_small_data(pictures), *_label_settings(labels, is_uneven, several)]
    arch = given.get("model", {}).get("arch", "transformer-classifier")
    choices.append(PlannedSetting("model.arch", arch, "attention over the patches, which can be shown"))
    few = f"{pictures:,} pictures"
    if arch == "transformer-classifier":
        size, layers = (64, 2) if pictures < 10_000 else (128, 4)
        choices += [PlannedSetting("model.width", size, few), PlannedSetting("model.ffn_width", 2 * size, few)]
        choices.append(PlannedSetting("model.encoder_layers", layers, few))
    choices.append(PlannedSetting("model.dropout", 0.1, "augmentation is the stronger remedy against overfitting"))
    wanted = (32 if pictures < 10_000 else 64) * (patches + 1)
    batch, epoch = choose_batch(
        given, wanted, least=64, examples=pictures, length=patches + 1, unit="pictures", filled=1.0
    )
    every = min(max(epoch, 50), 2000)
    choices += [batch, *choose_learning_rate(2e-3, 100, 0.4, muon=arch == "transformer-classifier")]
    choices += choose_length(epoch, validate_every=every, patience=10, max_steps=max(40 * epoch, 20 * every))
    return leave_given(choices, given)


def make_series_plan(data: SeriesFacts, given: Tables) -> list[PlannedSetting]:
    arch, few = given.get("model", {}).get("arch", "han"), f"{data.series:,} series"
    choices = [PlannedSetting("model.arch", arch, "attention over the frames, which can be shown")]
    size = 64 if data.series < 5_000 else 128
    if arch == "han":
        choices += [PlannedSetting(f"model.{name}", size, few) for name in ("embedding_width", "width")]
    elif arch == "transformer-classifier":
        choices += [PlannedSetting("model.width", size, few), PlannedSetting("model.ffn_width", 2 * size, few)]
        choices.append(PlannedSetting("model.encoder_layers", 2, few))
    choices.append(PlannedSetting("model.dropout", 0.3, "the less data, the more dropout"))
    choices += _label_settings(data.labels, data.rarest < 0.5 / data.labels, several=False)
    wanted = (32 if data.series >= 2_000 else 16) * data.frames
    batch, epoch = choose_batch(
        given, wanted, least=64, examples=data.series, length=data.frames, unit="series", filled=0.9
    )
    every = min(max(epoch, 30), 1000)
    choices += [batch, *choose_learning_rate(3e-3, 50, 0.4, muon=arch == "transformer-classifier")]
    choices += choose_length(epoch, validate_every=every, patience=8, max_steps=max(40 * epoch, 20 * every))
    return leave_given(choices, given)


def _for_small_data(pictures: int) -> Iterator[PlannedSetting]:
    if pictures < 50_000:
        yield PlannedSetting("pictures.rotation", 10.0, "a slightly turned picture has the same label")


def _label_settings(labels: int, is_uneven: bool, several: bool) -> Iterator[PlannedSetting]:
    if several:
        yield PlannedSetting("classify.multi_label", True, "some examples have several labels, or none")
    elif is_uneven:
        yield PlannedSetting("classify.class_weights", "balanced", f"the rarest of {labels} labels is infrequent")
    reason = "rare labels count as much as others" if is_uneven else "labels are about equally frequent"
    yield PlannedSetting("train.metric", "f1" if is_uneven else "accuracy", reason)
