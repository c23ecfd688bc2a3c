"""Translation by CTranslate2, for runs that can be converted and searches that it knows. Torch is never imported."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Literal

from regard.config import Search
from regard.convert.engine import Engine, Found, Quantization, convert_if_new, engine_folder
from regard.convert.support import exportable
from regard.errors import SettingsError, UnwritableError
from regard.run import Run
from regard.tasks.answer import Answer, find_flags, target_scripts, try_again
from regard.tasks.long import in_pieces

EngineName = Literal["auto", "torch", "ctranslate2"]
SUPPORTED = frozenset({"beam", "length_penalty", "stop", "min_length", "max_ratio", "max_extra", "no_repeat"})
"""Search settings that CTranslate2 follows."""
OUTSIDE = frozenset({"retry", "max_source", "long_lines", "join_up_to", "batch_tokens"})
"""Settings that do not concern the search of one sentence: retries and long lines are handled in this module."""
DEPENDENT = frozenset({"temperature", "top_k", "top_p", "epsilon", "seed", "diversity", "mixing"})
"""Settings without effect unless `sample`, `groups` or an ensemble is asked for. Each of these needs torch."""


class FastTranslator:
    """A converted run. Answers as `Translator` gives them; log-probabilities of tokens only when asked for."""

    def __init__(self, engine: Engine, search: Search, scripts: frozenset[str] | None = None):
        self.engine, self.search, self.scripts = engine, search, scripts

    def translate(self, texts: Sequence[str], *, nbest: int = 1, details: bool = False, **search: Any) -> list[Answer]:
        """Translate texts, given back in order. Keywords override `search` settings, e.g. beam=1."""
        settings = replace(self.search, **search)
        return in_pieces(texts, self.engine.source, settings, lambda parts: self._all(parts, settings, nbest, details))

    def _all(self, texts: Sequence[str], settings: Search, nbest: int, details: bool) -> list[Answer]:
        """Answers, with loops and empty ones tried again."""
        answers = self._answer(texts, settings, nbest, details)
        if not settings.retry:
            return answers
        return try_again(
            answers, settings, lambda places, safer: self._answer([texts[p] for p in places], safer, nbest, details)
        )

    def _answer(self, texts: Sequence[str], settings: Search, nbest: int, details: bool) -> list[Answer]:
        encoded = self.engine.source.encode_many(list(texts))
        answers = [Answer(text, "", 0.0, (), (), True) for text in texts]
        places = [place for place, ids in enumerate(encoded) if ids]
        sources = [encoded[place] for place in places]
        found: Iterable[tuple[int, list[Found]]] = self.engine.as_they_come(
            sources,
            [max(int(settings.max_ratio * len(ids)) + settings.max_extra, 1) for ids in sources],
            beam=settings.beam,
            penalty=settings.length_penalty,
            stop=settings.stop,
            hypotheses=nbest,
            no_repeat=settings.no_repeat,
            min_length=settings.min_length,
        )
        forbids = settings.no_repeat > 0 or settings.min_length > 0
        known = self._log_probs(sources, found := list(found)) if details or forbids else {}
        if forbids:
            found = [(number, _by_own_scores(number, some, known, settings)) for number, some in found]
        for number, hypotheses in found:  # while the workers go on with the others
            text = texts[places[number]]
            made = [self._make(text, one, known.get((number, one.tokens), ()) if details else ()) for one in hypotheses]
            answers[places[number]] = replace(made[0], alternatives=tuple(made[1:])) if made[1:] else made[0]
        return answers

    def _log_probs(
        self, sources: Sequence[list[int]], found: Sequence[tuple[int, list[Found]]]
    ) -> dict[tuple[int, tuple[int, ...]], tuple[float, ...]]:
        """Of the tokens of each hypothesis and of its end, if it came, by the place of its sentence."""
        asked = [(number, one) for number, hypotheses in found for one in hypotheses]
        scores = self.engine.score([sources[number] for number, _ in asked], [one.tokens for _, one in asked])
        return {
            (number, one.tokens): tuple(values if one.ended else values[:-1])
            for (number, one), values in zip(asked, scores, strict=True)
        }

    def _make(self, source: str, found: Found, log_probs: tuple[float, ...]) -> Answer:
        target = self.engine.target
        text = target.decode(found.tokens)
        flags = find_flags(source, text, found.ended, self.scripts)
        tokens = tuple(target.token(id) for id in found.tokens)
        return Answer(source, text, found.score, tokens, log_probs, found.ended, flags)


def _by_own_scores(
    number: int,
    hypotheses: Sequence[Found],
    known: Mapping[tuple[int, tuple[int, ...]], tuple[float, ...]],
    search: Search,
) -> list[Found]:
    """Hypotheses with the model's own scores, best first: what CTranslate2 forbids makes it surer of all the rest."""
    made = []
    for one in hypotheses:
        values = known[number, one.tokens]
        made.append(one._replace(score=sum(values) / len(values) ** search.length_penalty))
    return sorted(made, key=lambda one: -one.score)


def open_fast(
    wanted: EngineName,
    run: Run,
    search: Search,
    asked: Sequence[str] = (),
    *,
    quantization: Quantization = "int8",
    log: Callable[[str], None] | None = None,
) -> FastTranslator | None:
    """Open the run with CTranslate2 if `choose_engine` selects it; None means: use torch.

    If the run has to be converted and its folder cannot be written, "auto" falls back to torch and logs the reason.
    """
    if choose_engine(wanted, run, search, asked) == "torch":
        return None
    try:
        return load_fast(run, quantization, log)
    except UnwritableError as error:
        if wanted == "ctranslate2":
            raise
        if log:
            log(f"{error}; translating with torch")
        return None


def load_fast(
    run: Run, quantization: Quantization = "int8", log: Callable[[str], None] | None = None
) -> FastTranslator:
    """Open a run with CTranslate2. The run is converted once, on first use; `log` then gets one line about it."""
    folder = engine_folder(run, quantization)
    if convert_if_new(run, quantization, log) and log and quantization != "float32":
        how = f"regard export {run.folder} --to ctranslate2 --quantization {quantization}"
        log(f'converted for CTranslate2 in {quantization}; "{how}" measures the effect on BLEU')
    return FastTranslator(Engine(folder, *run.tokenizers), run.recipe.search, target_scripts(run))


def choose_engine(wanted: EngineName, run: Run, search: Search, asked: Sequence[str] = ()) -> EngineName:
    """The engine to take: CTranslate2 where it can do what is asked, else torch. `asked`: options beyond the search.

    Only where it is asked for does CTranslate2 stop exactly, which it is slow at, or forbid, where it may find other
    texts than torch.
    """
    left_alone = search.no_repeat or search.min_length or search.stop == "exact"
    if wanted == "torch" or (wanted == "auto" and left_alone):
        return "torch"
    reason = why_not(run, search, asked)
    if not reason:
        return "ctranslate2"
    if wanted == "ctranslate2":
        raise SettingsError(f"--engine ctranslate2: {reason}; use --engine torch")
    return "torch"


def why_not(run: Run, search: Search, asked: Sequence[str] = ()) -> str:
    """Why CTranslate2 cannot do it; empty when it can.

    A setting that is in none of the three lists above must have its default value: a new one goes to torch.
    """
    for setting in fields(search):
        name = setting.name
        if name not in SUPPORTED | OUTSIDE | DEPENDENT and getattr(search, name) != setting.default:
            return f"CTranslate2 does not support search.{name}"
    if asked:
        return f"CTranslate2 does not support {asked[0]}"
    if reason := exportable(run.recipe)["ctranslate2"]:
        return reason
    return "" if importlib.util.find_spec("ctranslate2") else 'it is not installed; pip install "regard[ctranslate2]"'
