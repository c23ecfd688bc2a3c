"""`BlankFiller` fills the blanks of texts with a trained masked language model, and scores texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard.data.batches import in_batches, make_sources
from regard.errors import RunError, SettingsError
from regard.models.base import count_parameters
from regard.models.masked_language_model import MaskedLanguageModel
from regard.run import Run
from regard.tasks.masked_language_model.masking import MASK
from regard.tasks.masked_language_model.scores import BATCH_TOKENS, MaskedScore, hide_all, hide_some, score_texts
from regard.tasks.masked_language_model.settings import MaskedLanguageModelSettings
from regard.text.tokenizer import FIRST_TOKEN, SPACE_MARK, Tokenizer

BLANK = "[MASK]"
"""What marks a blank in a text."""
_STAND_IN = "\uf8ff"
"""A character for private use, which stands for a blank while a text is encoded: it is never part of a subword."""


class Candidate(NamedTuple):
    """A token for a blank, as text without the space before it, and its probability among the tokens that fit.

    After a space, these are the tokens that start a word; otherwise those that continue one, or follow without a space.
    """

    text: str
    probability: float


@dataclass(frozen=True)
class FilledText:
    """A text whose blanks are filled with the most probable tokens, and the candidates for each blank."""

    given: str
    text: str
    blanks: tuple[tuple[Candidate, ...], ...]

    def as_dict(self) -> dict[str, Any]:
        blanks = [
            [{"text": one.text, "probability": round(one.probability, 6)} for one in found] for found in self.blanks
        ]
        return {"given": self.given, "text": self.text, "blanks": blanks}


class BlankFiller:
    """Fills blanks and scores texts with a masked language model. `regard.load` makes one from a run folder."""

    def __init__(
        self,
        model: MaskedLanguageModel,
        tokenizer: Tokenizer,
        settings: MaskedLanguageModelSettings | None = None,
        max_length: int = 128,
    ):
        """`max_length`: longer texts are read in windows of this many tokens."""
        self.model, self.tokenizer, self.max_length = model, tokenizer, max_length
        self.settings = settings or MaskedLanguageModelSettings()
        names = [tokenizer.token(id) for id in range(FIRST_TOKEN, tokenizer.pad)]
        by_character = tokenizer.kind == "character"
        starts = [by_character or (name.startswith(SPACE_MARK) and name != SPACE_MARK) for name in names]
        continues = [by_character or not name.startswith(SPACE_MARK) for name in names]
        if not any(starts) or not any(continues):  # all tokens are of one kind
            starts = continues = [True] * len(names)
        special = [False] * FIRST_TOKEN
        self._allowed = {
            True: torch.tensor([*special, *starts, False]),
            False: torch.tensor([*special, *continues, False]),
        }
        """Which tokens may fill a blank that has a space before it, and one that has none."""

    def __repr__(self) -> str:
        size = count_parameters(self.model)
        return f"<BlankFiller: {type(self.model).__name__}, {size:,} parameters, {self.tokenizer.size:,} tokens>"

    def fill(self, texts: str | Sequence[str], *, best: int = 5) -> list[FilledText]:
        """Fill each `[MASK]` with one token, independently of the other blanks; `best`: number of candidates."""
        texts = [texts] if isinstance(texts, str) else list(texts)
        encoded = [self._encode(text) for text in texts]
        found: list[dict[int, list[Candidate]]] = [{} for _ in texts]
        chosen: list[dict[int, int]] = [{} for _ in texts]
        parts = [
            (text, start, ids[start : start + self.max_length], blanks)
            for text, (ids, blanks) in enumerate(encoded)
            for start in self._starts(len(ids), blanks)
        ]
        for index in in_batches([len(part[2]) + 1 for part in parts], BATCH_TOKENS):
            for place, blank, candidates in self._predict([parts[number] for number in index], best):
                text = parts[index[place]][0]
                chosen[text][blank] = candidates[0][0]
                found[text][blank] = [Candidate(self._word(id), probability) for id, probability in candidates]
        return [
            FilledText(text, self._spell(ids, chosen[number]), tuple(tuple(found[number][blank]) for blank in blanks))
            for number, (text, (ids, blanks)) in enumerate(zip(texts, encoded, strict=True))
        ]

    def score(self, texts: Sequence[str], *, one_by_one: bool = False, quick: bool = False) -> list[MaskedScore]:
        """Predict every token of each text once, some at a time (`hidden_share`), or one at a time.

        With `quick`, only one share of the tokens of each window is hidden and predicted.
        """
        share = 0.0 if one_by_one else self.settings.hidden_share
        hide = partial(hide_some if quick else hide_all, share=share)
        return score_texts(self.model, self.tokenizer, texts, self.max_length, hide)

    def _encode(self, text: str) -> tuple[list[int], dict[int, bool]]:
        """The token ids of a text, with `MASK` for each blank; for its position, whether a space is before it."""
        if BLANK not in text:
            raise SettingsError(f'"{text[:60]}" has no blank; write {BLANK} in place of a word')
        known = self.tokenizer.normalize(text.replace(BLANK, _STAND_IN))
        is_blank = [character == _STAND_IN for character in known]
        ids: list[int] = []
        blanks: dict[int, bool] = {}
        done = -1  # the last character that is a blank already
        for piece in self.tokenizer.pieces(known):
            at = next((place for place in range(piece.start, piece.end) if is_blank[place]), -1)
            if at < 0:
                ids.append(piece.id)
            elif at > done:
                if ids and self.tokenizer.token(ids[-1]) == SPACE_MARK and self.tokenizer.kind != "character":
                    ids.pop()  # the space is part of the token that is predicted
                blanks[len(ids)] = at == 0 or known[at - 1] == " "
                ids.append(MASK)
                done = at
        return ids, blanks

    def _starts(self, length: int, blanks: Iterable[int]) -> list[int]:
        """The starts of those windows of a text of `length` tokens that have blanks."""
        starts = range(0, length, self.max_length)
        return [start for start in starts if any(start <= blank < start + self.max_length for blank in blanks)]

    @torch.no_grad()
    def _predict(
        self, parts: Sequence[tuple[int, int, list[int], dict[int, bool]]], best: int
    ) -> list[tuple[int, int, list[tuple[int, float]]]]:
        """For each blank in the windows `parts`: the number of the window, the position in the text, the candidates."""
        source = make_sources([ids for _, _, ids, _ in parts], self.tokenizer.pad)
        chosen_BS = torch.zeros_like(source.mask_BS)
        places, allowed = [], []
        for row, (_, start, ids, blanks) in enumerate(parts):
            for blank in blanks:
                if start <= blank < start + len(ids):
                    chosen_BS[row, blank - start] = True
                    places.append((row, blank))
                    allowed.append(self._allowed[blanks[blank]])
        device = self.model.output.weight.device
        logits_NV = self.model(source.to(device), chosen_BS.to(device)).float().cpu()
        logits_NV.masked_fill_(~torch.stack(allowed), float("-inf"))
        probability_NK, id_NK = logits_NV.softmax(1).topk(min(best, logits_NV.shape[1]), dim=1)
        candidates = [
            [(id, probability) for id, probability in zip(*row, strict=True) if probability > 0]
            for row in zip(id_NK.tolist(), probability_NK.tolist(), strict=True)
        ]
        return [(row, blank, found) for (row, blank), found in zip(places, candidates, strict=True)]

    def _word(self, id: int) -> str:
        return self.tokenizer.token(id).removeprefix(SPACE_MARK)

    def _spell(self, ids: Sequence[int], chosen: dict[int, int]) -> str:
        return self.tokenizer.decode([chosen.get(place, id) for place, id in enumerate(ids)])


def load(run: str | Path | Run, *others: str | Path) -> BlankFiller:
    opened = Run.open(run).require("masked-language-model")
    if others:
        raise RunError(f"{others[0]}: several masked language models cannot be combined; give only one run")
    model, recipe = opened.load_network(), opened.recipe
    assert isinstance(model, MaskedLanguageModel)
    return BlankFiller(model, opened.tokenizers[0], recipe.task, recipe.data.max_length)
