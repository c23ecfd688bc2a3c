"""A run's search in the words of `generate` of Hugging Face `transformers`, and back.

Only what means the same on both sides is taken over; of the rest both directions give the names, to be told. Their
`min_length` counts the start token. They normalise, if at all, after everything was forbidden, where we normalise
before: a score of ours stays the model's own opinion. Their `repetition_penalty` is ours in a beam search that does not
normalise; a greedy one applies it to logits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from regard.config import Search
from regard.data.tokenizer import SOS, UNK, Tokenizer
from regard.errors import RunError

UNKNOWN_TO_THEM = ("penalty_form", "coverage_penalty", "groups", "sample", "replace_unknown")
UNKNOWN_TO_US = {
    "do_sample": False,
    "num_beam_groups": 1,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "exponential_decay_length_penalty": None,
    "forced_bos_token_id": None,
    "begin_suppress_tokens": None,
    "sequence_bias": None,
}
"""What changes their search, with the values that change nothing."""
NUMBERS = (
    "num_beams",
    "length_penalty",
    "no_repeat_ngram_size",
    "min_length",
    "min_new_tokens",
    "repetition_penalty",
)
RENORMALIZE = "renormalize_logits"


def to_generation(search: Search, target: Tokenizer) -> tuple[dict[str, Any], list[str]]:
    """Our search as they write it down, and what they cannot say."""
    chosen = [target.tokens.index(token) for token in search.suppress if token in target.tokens]
    said = {
        "num_beams": search.beam,
        "length_penalty": search.length_penalty,
        "early_stopping": True if search.stop == "enough" else "never",
        "suppress_tokens": list(dict.fromkeys([UNK, SOS, target.pad, *chosen])),
    }
    lost = [name for name in UNKNOWN_TO_THEM if getattr(search, name) != getattr(Search(), name)]
    if "penalty_form" in lost and not search.length_penalty:
        lost.remove("penalty_form")  # both forms divide by one
    if search.no_repeat:
        said["no_repeat_ngram_size"] = search.no_repeat
    if search.min_length:
        said["min_length"] = search.min_length + 1
    if search.repetition_penalty != 1 and search.beam > 1:
        said["repetition_penalty"] = search.repetition_penalty
    elif search.repetition_penalty != 1:
        lost.append("repetition_penalty")
    # What is never written leaves its probability to the others; what is forbidden in some places does not.
    forbids = search.no_repeat or search.min_length or chosen or "repetition_penalty" in said
    said[RENORMALIZE] = not forbids
    return said, [f"search.{name} = {json.dumps(getattr(search, name))}" for name in lost]


def from_generation(
    said: Mapping[str, Any], tokens: Mapping[int, str], *, where: str
) -> tuple[dict[str, Any], list[str]]:
    """Their search as our settings, and what these cannot say. `tokens`: by their ids, all but the special ones."""
    given = {name: value for name, value in said.items() if value is not None}
    for name in NUMBERS:
        if isinstance(value := given.get(name, 0), bool) or not isinstance(value, int | float):
            raise RunError(f"{where}: {name} = {json.dumps(value)} is not a number")
    search = {
        "beam": given.get("num_beams", 1),
        "length_penalty": given.get("length_penalty", 1.0),
        "no_repeat": given.get("no_repeat_ngram_size", 0),
        "min_length": given.get("min_new_tokens", max(given.get("min_length", 0) - 1, 0)),
        "suppress": [tokens[id] for id in _forbidden(given, where) if id in tokens],
    }
    lost = [name for name, plain in UNKNOWN_TO_US.items() if given.get(name, plain) != plain]
    if any(len(ids) > 1 for ids in given.get("bad_words_ids", [])):
        lost.append("bad_words_ids")
    if stop := _stop(given, search["beam"], search["length_penalty"]):
        search["stop"] = stop
    elif "early_stopping" in given and search["beam"] > 1:
        lost.append("early_stopping")
    if (factor := given.get("repetition_penalty", 1.0)) > 1 and search["beam"] > 1 and not given.get(RENORMALIZE):
        search["repetition_penalty"] = factor
    elif factor != 1:
        lost.append("repetition_penalty")
    return search, [f"{name} = {json.dumps(given[name])}" for name in lost]


def _stop(given: Mapping[str, Any], beam: int, penalty: float) -> str:
    """Ours, if one of them ends where theirs does; else nothing."""
    early = given.get("early_stopping", False)
    if early is True:
        return "enough"
    # Theirs asks whether the open hypotheses would win at the length they have; without a reward for length, none can
    # win later that cannot win now.
    return "exact" if early == "never" or (beam > 1 and penalty <= 0) else ""


def _forbidden(given: Mapping[str, Any], where: str) -> list[int]:
    """Tokens that are never written, each once."""
    try:
        alone = [ids[0] for ids in given.get("bad_words_ids", []) if len(ids) == 1]
        return list(dict.fromkeys([*given.get("suppress_tokens", []), *alone]))
    except TypeError:
        raise RunError(f"{where}: suppress_tokens and bad_words_ids are not lists of ids") from None
