"""`Captioner` describes pictures with a trained model, scores given captions, and shows where the model looks."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.config import Recipe
from regard.data.batches import TokenSource, make_targets
from regard.decoding.hypothesis import Hypothesis, keep_rows
from regard.errors import NoCrossAttentionError, RunError, SettingsError, nearest
from regard.files import chunks
from regard.layers.hooks import attention_hooks, trace
from regard.models.base import EncoderOutput, Seq2Seq, count_parameters
from regard.run import Run, open_together
from regard.tasks.caption.data import language_tags, start_tokens
from regard.tasks.generation import Searcher, SearchInput, check_search
from regard.tasks.pictures import picture_input, picture_mask, read_pictures
from regard.text.tokenizer import EOS, Tokenizer

Picture = str | Path | bytes | NDArray[np.uint8]
"""A picture: the path of a file, the content of a file, or pixels [Y, X], [Y, X, 3] or [Y, X, 4]."""


@dataclass(frozen=True)
class Caption:
    """A caption that the model has written for a picture."""

    text: str
    score: float
    """Log-probability of the caption, divided by its length penalty."""
    tokens: tuple[str, ...]
    language: str = ""
    alternatives: tuple[Caption, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON data."""
        found = {"text": self.text, "score": round(self.score, 4), "language": self.language, "tokens": [*self.tokens]}
        others = [{"text": one.text, "score": round(one.score, 4)} for one in self.alternatives]
        return found | ({"alternatives": others} if others else {})


@dataclass(frozen=True)
class CaptionAttention:
    """Cross-attention over the patches of a picture for every token of a caption, T tokens including the end token."""

    text: str
    language: str
    tokens: tuple[str, ...]
    """The tokens with the end token."""
    spans: tuple[tuple[int, int], ...]
    """First character of each token in `text`, and the character after its last one; the end token has none."""
    log_probs: tuple[float, ...]
    """Log-probability of each token, given the picture and the tokens before it."""
    maps: Tensor
    """Mean over all layers and heads: [T, rows, columns]; the weights of a token sum to 1."""
    layers: dict[str, Tensor]
    """For each attention layer, by the name of its hook: [heads, T, rows, columns]."""

    def tokens_in(self, start: int, end: int) -> list[int]:
        """The indices of the tokens that have characters of `text[start:end]`."""
        spans = enumerate(self.spans)
        return [place for place, (first, last) in spans if first < last and first < end and start < last]

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON data, with the mean maps only."""
        shown = [[[round(weight, 5) for weight in row] for row in rows] for rows in self.maps.tolist()]
        return {
            "text": self.text,
            "language": self.language,
            "tokens": [*self.tokens],
            "spans": [[*span] for span in self.spans],
            "maps": shown,
        }


@dataclass(frozen=True)
class PictureSearchInput(SearchInput):
    """A picture for a search. Its `ids` are a hash of the pixels, from which the seed of samples is computed."""

    pixels: NDArray[np.uint8] | None = None


class PictureSearcher(Searcher):
    """Writes captions: a `Searcher` whose inputs are pictures."""

    def __init__(self, models: Sequence[Seq2Seq], tokenizer: Tokenizer, recipe: Recipe, start: int):
        super().__init__(models, tokenizer, tokenizer, recipe.search, start=start)
        self.pictures = recipe.pictures

    def _source(self, inputs: Sequence[SearchInput]) -> TokenSource:
        pixels = np.stack([one.pixels for one in inputs])  # type: ignore[attr-defined]  # PictureSearchInput
        return TokenSource(picture_input(pixels, self.pictures), picture_mask(self.pictures, len(pixels))).to(
            self.device
        )


class Captioner:
    """Describes pictures with a trained model or an ensemble. `regard.load` makes a captioner from run folders."""

    def __init__(self, model: Seq2Seq, tokenizer: Tokenizer, recipe: Recipe, others: Sequence[Seq2Seq] = ()):
        """`others`: further models, which form an ensemble with `model`."""
        self.model, self.tokenizer, self.recipe, self.models = model, tokenizer, recipe, (model, *others)
        self.languages: tuple[str, ...] = recipe.task.languages
        self.starts = start_tokens(tokenizer, self.languages)

    def __repr__(self) -> str:
        size, languages = count_parameters(self.model), ", ".join(self.languages) or "one language"
        return f"<Captioner: {type(self.model).__name__}, {size:,} parameters, {languages}>"

    def caption(
        self, pictures: Picture | Sequence[Picture], *, language: str = "", nbest: int = 1, **search: Any
    ) -> list[Caption]:
        """Describe one picture or many: one caption per picture, each with `nbest` - 1 alternatives.

        `language`: one of `languages`; empty: the first one. Keywords override settings of [search], e.g. beam_size=1.
        """
        several = [pictures] if isinstance(pictures, str | Path | bytes | np.ndarray) else list(pictures)
        captions: list[Caption] = []
        for some in chunks(several, self.recipe.task.batch_pictures):
            captions += self.caption_pixels(self.read(some), language, nbest, **search)
        return captions

    def caption_pixels(
        self, pixels_BCYX: NDArray[np.uint8], language: str = "", nbest: int = 1, **search: Any
    ) -> list[Caption]:
        """Like `caption`, for pictures that already have the size of the recipe."""
        language, settings = self.language(language), replace(self.recipe.search, **search)
        check_search(settings, nbest, tree=False)
        if settings.replace_unknown:
            raise SettingsError("search.replace_unknown needs a source text, and a picture has none; leave it out")
        tags = language_tags(self.languages)  # never part of a caption
        settings = replace(settings, suppress_tokens=(*settings.suppress_tokens, *tags))
        recipe = replace(self.recipe, search=settings)
        searcher = PictureSearcher(self.models, self.tokenizer, recipe, self.starts[language])
        captions = []
        for some in chunks(pixels_BCYX, self.recipe.task.batch_pictures):
            inputs = [PictureSearchInput("", [zlib.crc32(one.tobytes())], (), one) for one in some]
            for found in searcher.search(inputs, nbest):
                best, *others = (self._caption(one, language) for one in found[:nbest])
                captions.append(replace(best, alternatives=tuple(others)))
        return captions

    def score(self, picture: Picture, texts: Sequence[str], language: str = "") -> list[float]:
        """The log-probability per token of each text as a caption of the picture, with its end token."""
        if not texts:
            return []
        log_probs_NT, mask_NT = self._force(self.encode(self.read([picture])), texts, language)
        return (log_probs_NT.sum(1) / mask_NT.sum(1)).tolist()

    def score_pairs(self, pixels_NCYX: NDArray[np.uint8], texts: Sequence[str], language: str = "") -> Tensor:
        """The log-probability per token of each of M texts as a caption of each of N pictures: [N, M].

        The pictures already have the size of the recipe.
        """
        size = self.recipe.task.batch_pictures
        columns = []
        for some in chunks(pixels_NCYX, size):
            memory, found = self.encode(np.stack(some)), []
            for text in texts:
                log_probs_NT, mask_NT = self._force(memory, [text] * len(some), language)
                found.append(log_probs_NT.sum(1) / mask_NT.sum(1))
            columns.append(torch.stack(found, 1))
        return torch.cat(columns)

    @torch.inference_mode()
    def look(self, picture: Picture, text: str = "", language: str = "") -> CaptionAttention:
        """The attention of the model to the picture while it reads `text`; "": while it writes its own caption."""
        language = self.language(language)
        if not any(name.endswith("cross") for name in attention_hooks(self.model)):
            raise NoCrossAttentionError(f"{self.recipe.model.arch} has no attention to the picture; use another run")
        pixels = self.read([picture])
        text = self.tokenizer.normalize(text or self.caption_pixels(pixels, language)[0].text)
        pieces = self.tokenizer.pieces(text)
        ids = [piece.id for piece in pieces]
        height, width = (side // self.recipe.pictures.patch_size for side in self.recipe.pictures.size)
        with trace(self.model, "decoder*cross") as tape:
            log_probs_1T, _ = self._force(self.encode(pixels)[:1], [text], language)
        layers = {
            name: seen.weights_BHTS[0].float().cpu().unflatten(-1, (height, width)) for name, seen in tape.items()
        }
        return CaptionAttention(
            text,
            language,
            tuple(self.tokenizer.token(id) for id in (*ids, EOS)),
            (*((piece.start, piece.end) for piece in pieces), (len(text), len(text))),
            tuple(log_probs_1T[0].tolist()),
            torch.cat(list(layers.values())).mean(0),
            layers,
        )

    def read(self, pictures: Sequence[Picture]) -> NDArray[np.uint8]:
        """Read pictures and make them the size of the recipe: [B, C, Y, X]."""
        return read_pictures(pictures, self.recipe.pictures)

    def language(self, wanted: str) -> str:
        """The language `wanted`, or the first one if it is empty; an unknown one is an error."""
        if not wanted:
            return self.languages[0] if self.languages else ""
        if wanted not in self.languages:
            known = ", ".join(self.languages) or "one language without a name"
            guess = nearest(wanted, self.languages) or f"; it knows {known}"
            raise RunError(f'the run does not know the language "{wanted}"{guess}')
        return wanted

    @torch.inference_mode()
    def encode(self, pixels_NCYX: NDArray[np.uint8]) -> list[EncoderOutput]:
        """Encode pictures of the size of the recipe with each model."""
        device, settings = self.model.output.weight.device, self.recipe.pictures
        source = TokenSource(picture_input(pixels_NCYX, settings), picture_mask(settings, len(pixels_NCYX))).to(device)
        return [model.encode(source) for model in self.models]

    @torch.inference_mode()
    def _force(self, memories: list[EncoderOutput], texts: Sequence[str], language: str) -> tuple[Tensor, Tensor]:
        """Log-probabilities [N, T] of the tokens of N texts, 0 at padding, and the mask of the tokens.

        `memories`: for each model, N encoded pictures, or a single one for all texts. An ensemble has the mean of the
        log-probabilities.
        """
        ids = self.tokenizer.encode_many(list(texts))
        input_NT, output_NT, mask_NT = make_targets(ids, self.tokenizer.pad)
        input_NT[:, 0] = self.starts[self.language(language)]
        device = self.model.output.weight.device
        input_NT, output_NT, mask_NT = input_NT.to(device), output_NT.to(device), mask_NT.to(device)
        found = []
        for model, memory in zip(self.models, memories, strict=False):
            if len(memory.mask_BS) != len(texts):
                memory = keep_rows(memory, torch.zeros(len(texts), dtype=torch.int64, device=device))
            log_probs_NTV = model.output(model.decode(memory, input_NT)).float().log_softmax(-1)
            found.append(log_probs_NTV.gather(2, output_NT[:, :, None])[:, :, 0])
        return torch.stack(found).mean(0).masked_fill(~mask_NT, 0.0).cpu(), mask_NT.cpu()

    def _caption(self, found: Hypothesis, language: str) -> Caption:
        tokens = tuple(self.tokenizer.token(id) for id in found.tokens)
        return Caption(self.tokenizer.decode(found.tokens), found.score, tokens, language)


def texts_of(captions: Iterable[Caption]) -> list[str]:
    return [one.text for one in captions]


def load(run: str | Path | Run, *others: str | Path) -> Captioner:
    """Open a trained run. With `others`, which must have the same vocabulary and pictures, all form an ensemble."""
    opened, *members = open_together(Run.open(run).require("caption"), *others)
    for member in members:
        if member.require("caption").recipe.pictures.sizes != opened.recipe.pictures.sizes:
            raise RunError(
                f"{member.folder}: reads other sizes of pictures than {opened.folder}; give runs of one kind"
            )
    models = [member.load_model() for member in (opened, *members)]
    return Captioner(models[0], opened.tokenizers[1], opened.recipe, models[1:])
