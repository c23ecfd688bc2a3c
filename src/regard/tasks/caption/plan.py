"""The plan of caption models: sizes from the number of pictures and captions, augmentation, learning rate, length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from regard.config import settings_of
from regard.models.transformer_settings import TransformerSettings
from regard.tasks.caption.data import Captioned, languages_of
from regard.tasks.pictures import PictureExamples, plan_pictures
from regard.text.tokenizer import normalize, split_tokens
from regard.training.device import Machine
from regard.training.plan import (
    PlannedSetting,
    Tables,
    choose_batch,
    choose_learning_rate,
    choose_length,
    choose_precision,
    leave_given,
)

FEW_PICTURES = 20_000
"""With fewer pictures, networks are small, and the attending LSTM is better than a Transformer (docs/log.md)."""
MOST_WORDS = 16_000
"""With more different words than this, or with words that are not separated by spaces, captions are subwords."""


class CaptionFacts(NamedTuple):
    """What the plan knows about the captions."""

    captions: int
    tokens: float
    """Estimated mean number of tokens of a caption, with its end token."""
    different: int
    """Number of different words and punctuation marks."""
    has_words: bool
    """Whether spaces separate the words of captions, guessed from their mean length: below 15 characters."""


def measure_captions(examples: PictureExamples[Captioned]) -> CaptionFacts:
    """Count the words of all training captions."""
    counts: Counter[str] = Counter()
    for one in examples.parts.train():
        counts.update(split_tokens("word", normalize(one.text)))
    total = max(counts.total(), 1)
    length = sum(len(word) * count for word, count in counts.items()) / total
    count = max(len(examples), 1)
    return CaptionFacts(len(examples), total / count + 1, len(counts), length < 15)


def make_plan(examples: PictureExamples[Captioned], machine: Machine, given: Tables) -> list[PlannedSetting]:
    """Choose the settings that the user has not `given`, to fit the data and the machine."""
    facts, pictures, train = measure_captions(examples), examples.facts, given.get("train", {})
    arch = _choose_arch(pictures.pictures, given)
    model = settings_of(arch.value)
    muon = model.suits_muon and train.get("optimizer") != "adam"
    muon = muon and not (train.get("fsdp") or train.get("expert_parallel"))
    shown = list(plan_pictures(pictures, given))
    choices = [*_languages(examples, given), *shown, *_vocabulary(facts, given), arch]
    choices += _sizes(pictures.pictures, model)
    chosen = {choice.name: choice.value for choice in shown}
    (height, width), patch = chosen["pictures.size"], chosen["pictures.patch_size"]
    patches = (height // patch) * (width // patch)
    wanted = (32 if pictures.pictures < FEW_PICTURES else 64) * patches
    batch, epoch = choose_batch(
        given, wanted, least=256, examples=facts.captions, length=patches, unit="pictures", filled=1.0
    )
    every = min(max(epoch, 100), 2000)
    most = 0 if train.get("max_minutes") else max(100 * epoch, 20 * every)
    choices += [
        batch,
        *choose_precision(machine),
        *choose_learning_rate(2e-3 if muon else 1e-3, 100, 0.4, muon=muon, muon_rate=model.muon_rate),
        *choose_length(epoch, validate_every=every, patience=12, max_steps=most),
    ]
    return leave_given(choices, given)


def _choose_arch(pictures: int, given: Tables) -> PlannedSetting:
    """The architecture: that of the user, or a Transformer if the user has given settings of one."""
    own = given.get("model", {})
    if pictures < FEW_PICTURES and not own:
        return PlannedSetting("model.arch", "show-attend-tell", f"{pictures:,} pictures: learns from fewer of them")
    many = f"{pictures:,} pictures: enough for self-attention over the patches"
    return PlannedSetting("model.arch", own.get("arch", "transformer-mini"), many)


def _languages(examples: PictureExamples[Captioned], given: Tables) -> Iterator[PlannedSetting]:
    languages = given.get("caption", {}).get("languages") or languages_of(examples)
    if languages:
        yield PlannedSetting("caption.languages", tuple(languages), "those of the data")


def _vocabulary(facts: CaptionFacts, given: Tables) -> Iterator[PlannedSetting]:
    by_words = facts.has_words and facts.different <= MOST_WORDS
    if given.get("tokenizer", {}).get("kind", "word" if by_words else "bpe") == "word":
        size = min(max(-(-(facts.different + 10) // 500) * 500, 500), MOST_WORDS)
        few = (
            f"{facts.different:,} different words: a caption of words is learned from fewer pictures than one of parts"
        )
        yield PlannedSetting("tokenizer.kind", "word", few)
        yield PlannedSetting("tokenizer.vocab_size", size, "all of them, or the most frequent ones")
        return
    much = facts.captions * facts.tokens
    size = 2000 if much < 2e5 else 4000 if much < 1e6 else 8000
    reason = f"about {much / 1e3:,.0f} thousand words: few enough that each subword is seen often"
    yield PlannedSetting("tokenizer.vocab_size", size, reason)


def _sizes(pictures: int, model: object) -> Iterator[PlannedSetting]:
    many = f"{pictures:,} pictures: a larger network overfits"
    if isinstance(model, TransformerSettings):
        width, layers = (128, 2) if pictures < FEW_PICTURES else (256, 3)
        yield PlannedSetting("model.width", width, many)
        yield PlannedSetting("model.encoder_layers", layers, many)
        yield PlannedSetting("model.decoder_layers", layers, many)
        yield PlannedSetting("model.ffn_width", 4 * width, "four times the width, as in the paper")
        yield PlannedSetting("model.heads", 4, "few heads, whose maps can be looked at")
        yield PlannedSetting("model.norm", "pre", "trains without a long warm-up")
        zero = "sub-layers add nothing at first: needs fewer steps"
        yield PlannedSetting("train.zero_init_residual", True, zero)
    if hasattr(model, "doubly_stochastic"):
        width = 128 if pictures < FEW_PICTURES else 512
        yield PlannedSetting("model.width", width, many)
        yield PlannedSetting("model.embedding_width", width, many)
    yield PlannedSetting("model.dropout", 0.3 if pictures < FEW_PICTURES else 0.2, "the less data, the more dropout")
