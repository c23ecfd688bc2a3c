"""The search settings that training finds."""

from pathlib import Path

import numpy as np
import pytest

from regard.config import SearchSettings
from regard.data.pairs import Pair
from regard.run import Run
from regard.tasks.translate.training import PENALTIES, choose, longest_join, still_tuned, tune_penalty, tune_search
from regard.tasks.translate.translation import Translation
from tests.export.runs import random_recipe, random_run

SHORT, LONG = "il gatto", "il gatto nero dorme qui"


def answer(short_first: bool = True) -> Translation:
    """Two hypotheses: 2 words and the end for -3.0 in all, 5 words and the end for -6.6."""
    short = Translation("the cat", SHORT, -1.0, ("il", "gatto"), (-1.0, -1.0, -1.0), True)
    long = Translation("the cat", LONG, -1.1, tuple(LONG.split()), (-1.1,) * 6, True)
    first, other = (short, long) if short_first else (long, short)
    return Translation(
        first.source, first.text, first.score, first.tokens, first.log_probs, True, alternatives=(other,)
    )


class Stub:
    """A translator that knows one answer."""

    def __init__(self, **search: object):
        self.search = SearchSettings(**search)  # type: ignore[arg-type]

    def translate(self, texts: list[str], **options: object) -> list[Translation]:
        return [answer() for _ in texts]


@pytest.mark.parametrize(("penalty", "wanted"), [(0.4, SHORT), (1.0, SHORT), (1.2, LONG), (2.6, LONG)])
def test_the_penalty_orders_the_hypotheses(penalty: float, wanted: str) -> None:
    """-3.0 / 3^p against -6.6 / 6^p: equal at p = log(2.2) / log(2) = 1.14."""
    assert choose(answer(), penalty) == choose(answer(short_first=False), penalty) == wanted


def test_long_references_ask_for_a_high_penalty() -> None:
    tuned = tune_penalty(Stub(), [Pair("the cat", LONG)] * 100)  # type: ignore[arg-type]
    assert tuned["search.length_penalty"] == 1.2  # the nearest to the usual one of all that choose the long one
    assert tuned["bleu"] == pytest.approx(100)
    assert tuned["bleu_before"] < 50


def test_the_usual_one_stays_where_nothing_is_gained() -> None:
    tuned = tune_penalty(Stub(), [Pair("the cat", "altro che questo")] * 100)  # type: ignore[arg-type]
    assert tuned["search.length_penalty"] == 1.0 in PENALTIES


@pytest.mark.parametrize(("search", "pairs"), [({}, 99), ({"beam_size": 1}, 200), ({"sample": True}, 200)])
def test_where_there_is_nothing_to_tune(search: dict[str, object], pairs: int) -> None:
    assert not tune_penalty(Stub(**search), [Pair("the cat", LONG)] * pairs)  # type: ignore[arg-type]


def test_what_was_found_is_found_anew_and_what_was_set_stays() -> None:
    card = {"tuned": {"search.length_penalty": 1.4, "search.max_joined_tokens": 30, "bleu": 20.0}}
    assert still_tuned(SearchSettings(length_penalty=1.4, max_joined_tokens=30), card) == {
        "search.length_penalty": 1.4, "search.max_joined_tokens": 30,
    }  # fmt: skip
    assert still_tuned(SearchSettings(length_penalty=0.6, max_joined_tokens=30), card) == {
        "search.max_joined_tokens": 30
    }
    assert still_tuned(SearchSettings(), {}) == {}


def test_a_finished_run_knows_how_far_to_join(tmp_path: Path) -> None:
    made = random_run(tmp_path / "run", random_recipe())
    made.write_card({})
    lengths = np.arange(1, 101)
    found = tune_search(made, [], lengths, print)
    assert found == {"search.max_joined_tokens": 99}
    assert Run.open(made.folder).recipe.search.max_joined_tokens == 99
    made.write_card({"tuned": found})
    assert tune_search(made, [], lengths // 2, print) == {"search.max_joined_tokens": 49}
    made.write_card({})  # now 49 looks like the user's own
    assert tune_search(made, [], lengths, print) == {}


def test_sentences_are_joined_only_where_such_lines_were_seen():
    lengths = np.arange(1, 101)
    one, two = Pair("A dog runs.", ""), Pair("A dog runs. It is old.", "")
    assert longest_join([one] * 99 + [two], lengths) == 99
    assert longest_join([one] * 100 + [two] * 1, lengths) == 1
    assert longest_join([two], lengths) == 99
