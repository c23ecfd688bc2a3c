"""The data of the HTML page of `regard inspect`: attention, probabilities, attribution and states of one translation.

`inspection` collects the data of one sentence; `inspect_run` adds stored measurements over many sentences.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from torch import Tensor

from regard import __version__
from regard.analysis.attribution import METHODS, attribute
from regard.analysis.effective_attention import effective_attention, seen_keys
from regard.analysis.embedding_maps import embedding_table, picture_positions, plane
from regard.analysis.hidden_token_attribution import hidden_token_attribution
from regard.analysis.trace import Trace, attention_entropy, next_tokens
from regard.config import SearchSettings
from regard.data.batches import Batch, make_batch
from regard.decoding.penalties import LengthPenalty
from regard.errors import EmptyTranslationError, ModelError, RunError, SettingsError
from regard.export import fingerprint
from regard.models.base import count_parameters
from regard.run import Run
from regard.tasks.translate.inspect.explain import FAITHFULNESS, HEADS, IDENTIFIABILITY
from regard.tasks.translate.inspect.heads import attention_kind
from regard.tasks.translate.translation import find_flags, refuse_long
from regard.tasks.translate.translator import Translator, load

SHOWN_PLACES, SHOWN_DIMENSIONS = 48, 128
"""Minimum number of positions, and maximum number of dimensions, of the positional encodings on the page."""
MIXING_WORK, GRADIENT_WORK = 1e11, 2e11
"""Maximum number of multiplications for hidden token attribution, and for integrated gradients. If an analysis needs
more, it is left out."""
TITLES = {"gradient": "gradient × input", "integrated": "integrated gradients", "alti": "ALTI"}
MEASUREMENTS = {
    HEADS: {"heads"},
    FAITHFULNESS: {"rows", "sentences", "verdict"},
    IDENTIFIABILITY: {"places", "curves", "chance"},
}
"""Files of measurements that a run folder may contain, and the fields that each must have."""

Json = dict[str, Any]
Log = Callable[[str], None]


def inspection(
    translator: Translator, text: str, target: str | None = None, *,
    heads: Sequence[Json] = (), faithfulness: Json | None = None,
    quick: bool = False, log: Log = lambda doing: None,
) -> Json:  # fmt: skip
    """Return the data of the page: attention, probabilities and states while the model generates a translation.

    The translation is `target` or, if None, the output of the model. `heads` are measured roles of heads
    (`HeadReport.as_dict`), and `faithfulness` is a result of `compare_explanations` (`as_dict`); both are optional.
    `quick` leaves out two slow analyses: attribution, and hidden token attribution. `log` receives progress messages.
    """
    _check(translator, text, target)
    log("translating")
    trace = translator.trace(text, target)
    if len(trace.target.tokens) == 1:
        raise EmptyTranslationError(
            "the translation by the model is empty and cannot be inspected; give a translation with --target"
        )
    source, target_tokens = translator.source, translator.target
    ids = {token: id for id, token in reversed(list(enumerate(target_tokens.tokens)))}
    pair = source.encode(trace.source.text), [ids[token] for token in trace.target.tokens[:-1]]
    batch = make_batch([pair], source.pad, target_tokens.pad).to(translator.model.output.weight.device)
    present = {(name, head) for name, weights in trace.weights.items() for head in range(len(weights))}
    roles = [_role(head) for head in heads if (head["attention"], head["head"]) in present]
    made = {
        "title": text if len(text) <= 80 else f"{text[:79]}…",
        "version": __version__,
        "model": {"parameters": count_parameters(translator.model)},
        **_probabilities(translator, trace, batch, given=target is not None),
        "source": asdict(trace.source),
        "target": asdict(trace.target),
        "attention": list(_attentions(trace)),
        "attention_formula": translator.model.attention_formula,
        "tree": trace.tree.as_dict() if trace.tree else None,
        "scoring": _scoring(translator.search),
        "planes": list(_planes(translator, trace, batch)),
        "positions": _positions(translator, max(len(trace.source.tokens), len(trace.target.tokens))),
        "roles": roles,
        "start": _start(translator, roles, present),
    }
    if not quick:
        made["attribution"] = _attribution(translator, batch, faithfulness, log)
        made["mixing"] = _mixing(translator, trace, batch, log)
    return made


def _rounded(values: Tensor, digits: int = 3) -> list[Any]:
    return (values.double().round(decimals=digits) + 0.0).tolist()  # + 0.0: no "-0.0"


def _check(translator: Translator, text: str, target: str | None) -> None:
    if not text.strip():
        raise SettingsError("the sentence is empty; give a sentence to inspect")
    if target is not None and not target.strip():
        raise SettingsError(
            "the target is empty; give a text, or leave out --target to inspect the translation by the model"
        )
    for name, tokenizer, side in (("sentence", translator.source, text), ("target", translator.target, target or "")):
        limit = translator.search.max_source_tokens
        refuse_long(side, tokenizer, limit, f"the {name}", "inspect one sentence at a time")


def _probabilities(translator: Translator, trace: Trace, batch: Batch, *, given: bool) -> Json:
    """Return the translation with its score, the probability and rank of its tokens, and the 8 best tokens per step.

    `given` (true if the translation is from the user, not from the model) is stored in the result.
    """
    assert trace.next is not None
    written_T = trace.next.gather(-1, batch.target_output_BT[0][:, None])[:, 0]
    rank_T = (trace.next > written_T[:, None]).sum(-1) + 1
    finished = [node.score for node in (trace.tree.nodes if trace.tree else ()) if node.score is not None]
    translation = {
        "text": trace.target.text,
        "log_prob": round(written_T.sum().item(), 4),
        "score": round(max(finished), 4) if finished else None,
        "flags": list(find_flags(trace.source.text, trace.target.text, True, translator.scripts)),
        "given": given,
    }
    written = [
        {"probability": round(share, 4), "rank": rank}
        for share, rank in zip(written_T.exp().tolist(), rank_T.tolist(), strict=True)
    ]
    table = next_tokens(trace.next, translator.target.token, 8)
    return {"translation": translation, "next": table | {"written": written}}


def _scoring(search: SearchSettings) -> str:
    """Return a sentence that describes how the search scores finished translations."""
    divisor = LengthPenalty(search.length_penalty, search.length_penalty_form).formula
    divided = f" divided by {divisor}, with the end token counted" if divisor else ""
    coverage = f", plus {search.coverage_penalty:g} times the coverage penalty" if search.coverage_penalty else ""
    return f"The score of a finished translation is its log-probability{divided}{coverage}."


def _attentions(trace: Trace) -> Iterator[Json]:
    """Yield for every attention layer its weights, their entropy, and effective weights (if different from them)."""
    for name, weights_HTS in trace.weights.items():
        if name in ("decoder.word", "decoder.utterance"):
            continue  # two levels of attention in HRAN: only their product, "decoder.cross", is shown
        kind = attention_kind(name)
        found = effective_attention(weights_HTS, trace.values[name], trace.outward.get(name), seen_keys(weights_HTS))
        effective = None if bool(found.identifiable_H.all()) else _rounded(found.effective_HTS)
        yield {
            "name": name,
            "kind": kind,
            "layer": _layer(name),
            "rows": "source" if kind == "encoder" else "target",
            "columns": {"encoder": "source", "decoder": "prefix", "cross": "source"}[kind],
            "head_width": trace.values[name].shape[-1],
            "weights": _rounded(weights_HTS),
            "entropy": _rounded(attention_entropy(weights_HTS).bits_H),
            "effective": found.as_dict() | {"keys": weights_HTS.shape[-1], "weights": effective},
        }


def _start(translator: Translator, roles: Sequence[Json], present: Collection[tuple[str, int]]) -> Json | None:
    """Return the cross-attention head that the page shows first, or None.

    It is the first head that the run uses for word alignment or, if none was chosen, the head with the best alignment
    role in `roles`. `present` are the heads (layer name, index) that the page has.
    """
    aligning = sorted((role for role in roles if role["role"] == "alignment"), key=lambda role: -role["share"])
    chosen = translator.alignment.heads if translator.alignment else ()
    for attention, head in [*chosen, *((role["name"], role["head"]) for role in aligning)]:
        if (attention, head) in present:
            return {"kind": "cross", "layer": _layer(attention), "head": head}
    return None


def _layer(attention: str) -> int | None:
    """Return the number in the name of an attention layer, e.g. 0 in "encoder.0.self"; None if there is no number."""
    found = re.search(r"\.(\d+)\.", attention)
    return int(found[1]) if found else None


def _attribution(translator: Translator, batch: Batch, faithfulness: Json | None, log: Log) -> Json:
    """Return the attribution of the translation by every method that supports the model.

    Integrated gradients are left out if they take too long. `faithfulness` is copied into the result.
    """
    methods = []
    work = 64.0 * batch.target_tokens**2 * count_parameters(translator.model)  # of dozens of backward passes per token
    for name, about in METHODS.items():
        if name == "integrated" and work > GRADIENT_WORK:
            continue
        log(f"attribution by {TITLES.get(name, name)}")
        try:
            found = attribute(translator.model, batch.source, batch.target_input_BT, batch.target_output_BT, name)
        except ModelError:  # e.g. rollout for a model without self-attention
            continue
        even = found.normalised()
        methods.append(
            {
                "name": name,
                "title": TITLES.get(name, name),
                "about": about,
                "signed": found.signed,
                "source": _rounded(even.source_TS),
                "target": _rounded(even.target_TT),
            }
        )
    return {"methods": methods, "faithfulness": faithfulness or None}


def _role(head: Json) -> Json:
    """Return the data of a head (`HeadReport.as_dict`) for the page: confidence, importance and strongest role."""
    facts = {
        "name": head["attention"],
        "head": head["head"],
        "confidence": round(head["confidence"], 3),
        "ablation": round(head["ablation"], 4),
        "role": None,
    }
    for role in head["roles"][:1]:
        shares = {name: round(role["evidence"][name], 3) for name in ("share", "baseline")}
        facts |= {"role": role["kind"], "of": role["name"], **shares}
    return facts


def _planes(translator: Translator, trace: Trace, batch: Batch) -> Iterator[Json]:
    """Yield the token embeddings, then the hidden states of each layer, each projected to two dimensions by PCA."""
    ids = {"source": batch.source.ids_BS[0], "target": batch.target_output_BT[0]}
    vectors: dict[str, dict[str, Tensor]] = {"vocabulary": {}}
    for side, part in (("source", "encoder"), ("target", "decoder")):
        try:
            vectors["vocabulary"][side] = embedding_table(translator.model, part)[ids[side]]
        except ModelError:
            continue
    for name, states_TD in trace.states.items():
        part, _, place = name.partition(".")
        shown = {"embed": "with position", "top": "top"}.get(place, f"layer {place}")
        vectors.setdefault(shown, {})["source" if part == "encoder" else "target"] = states_TD
    for name in sorted(vectors, key=lambda name: (name == "top", name.startswith("layer"), name == "with position")):
        flat = {}
        for side, vectors_TD in vectors[name].items():
            points_T2, explained_2 = plane(vectors_TD)
            flat[side] = {"points": _rounded(points_T2, 4), "explained": _rounded(explained_2, 4)}
        yield {"name": name, "reads": name == "with position", **flat}


def _mixing(translator: Translator, trace: Trace, batch: Batch, log: Log) -> Json | None:
    """Return how much each source token contributes to each encoder state (hidden token attribution, Brunner et al.).

    Returns None if the model has no such states, or if the computation takes too long.
    """
    if "encoder.embed" not in trace.states:
        return None
    size, width = trace.states["encoder.embed"].shape
    encoder = translator.model.get_submodule("encoder")
    weights = sum(weight.numel() for name, weight in encoder.named_parameters() if not name.startswith("embed."))
    if 2.0 * size * width * size * weights > MIXING_WORK:  # a pass per input dimension
        return None
    log("mixing of tokens")
    found = hidden_token_attribution(translator.model, batch.source)
    layers = [
        {
            "name": place,
            "share": _rounded(share_TS),
            "own_mean": round(found.own(place).mean().item(), 3),
            "by_distance": _rounded(found.by_distance(place)),
        }
        for place, share_TS in found.share.items()
    ]
    return {"passes": found.passes, "layers": layers}


def _positions(translator: Translator, length: int) -> Json | None:
    """Return the positional encodings of `length` or more positions, and their dot products; None if there are none."""
    found = None
    for places in (max(length, SHOWN_PLACES), length):  # a model may have fewer learned positions
        with contextlib.suppress(ModelError):
            found = found or picture_positions(translator.model, places)
    if found is None:
        return None
    pairs = found.rows_TD.shape[1] // 2
    every = max(1, -(-2 * pairs // SHOWN_DIMENSIONS))
    rows_TD = found.rows_TD.unflatten(1, (pairs, 2))[:, ::every].flatten(1) if every > 1 else found.rows_TD
    return {
        "kind": found.kind,
        "rotates": found.rotation_DD is not None,
        "every": every,
        "rows": _rounded(rows_TD),
        "dots": _rounded(found.dots_TT),
    }


def inspect_run(
    run: Run, text: str, target: str | None = None, *,
    quick: bool = False, log: Log = lambda doing: None,
    translator: Translator | None = None, measured: Mapping[str, Json] | None = None,
) -> Json:  # fmt: skip
    """Return the data of the page for the sentence `text`: `inspection`, and measurements that the run folder stores.

    The measurements are roles of heads (`regard heads RUN --save`), faithfulness of attribution methods, and token
    identifiability (`regard inspect RUN --measure`). If not given, `translator` and `measured` (the result of
    `read_measured`) are loaded from the run.
    """
    measured = read_measured(run) if measured is None else measured
    heads, faithfulness, identifiability = (measured[name] for name in MEASUREMENTS)
    log("loading the model")
    translator = translator or load(run.folder)
    known = {"heads": heads.get("heads", ()), "faithfulness": faithfulness}
    data = inspection(translator, text, target, **known, quick=quick, log=log)
    data["model"]["arch"] = run.recipe.model.arch
    languages = {"source": run.recipe.data.source_language, "target": run.recipe.data.target_language}
    return data | {"run": run.folder.name, "languages": languages, "identifiability": identifiability or None}


def read_measured(run: Run) -> dict[str, Json]:
    """Read the files of measurements in the run folder: file name -> content, or {} if it is missing or outdated."""
    measured: dict[str, Json] = {name: {} for name in MEASUREMENTS}
    for name, fields in MEASUREMENTS.items():
        path = run.folder / name
        if not path.exists():
            continue
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"{path}: cannot be read as JSON ({error}); measure again, or remove the file") from None
        if not isinstance(found, dict) or not found.keys() >= fields:
            raise RunError(f"{path}: must have {', '.join(sorted(fields))}; measure again, or remove the file")
        if found.get("weights") in (None, fingerprint(run)):
            measured[name] = found
    return measured
