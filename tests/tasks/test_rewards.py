"""Rewards of sentences against figures worked out by hand, and the settings of the objective."""

import sys

import pytest
import sacrebleu

from regard.config.recipe import make_recipe
from regard.errors import SettingsError
from regard.tasks.rewards import ObjectiveSettings, bleu, chrf, find_reward, gleu, mean_reward, objective_of
from regard.tasks.translate.settings import TranslateSettings


@pytest.mark.parametrize(
    ("output", "reference", "expected"),
    [
        # Numbers of n-grams of 1, 2, 3 and 4 words that match / the larger number of n-grams of the two sentences.
        ("the cat sat", "the cat sat", 1.0),
        ("the cat", "the cat sat", 3 / 6),  # recall: 2 + 1 of 3 + 2 + 1
        ("the cat sat", "the cat", 3 / 6),  # precision
        ("the the the", "the cat", 1 / 6),  # "the" matches once
        ("", "the cat", 0.0),
        ("the cat", "", 0.0),
        ("", "", 0.0),
        # 11 + 9 + 6 + 4 of 11 + 10 + 9 + 8
        (
            "he read the book because he was interested in world history",
            "he was interested in world history because he read the book",
            30 / 38,
        ),
        ("the cat.", "the cat .", 1.0),  # as in BLEU, a punctuation mark is a word
    ],
)
def test_gleu_is_the_smaller_of_precision_and_recall(output, reference, expected):
    assert gleu(output, reference) == pytest.approx(expected)
    assert gleu(reference, output) == pytest.approx(expected)


def test_other_rewards_are_those_of_sacrebleu():
    output, reference = "il gatto nero dorme qui", "il gatto nero dorme"
    assert chrf(output, reference) == pytest.approx(sacrebleu.sentence_chrf(output, [reference]).score / 100)
    assert bleu(output, reference) == pytest.approx(sacrebleu.sentence_bleu(output, [reference]).score / 100)
    assert bleu("gatto", "gatto") == pytest.approx(1.0)  # shorter than four words
    assert mean_reward(gleu, [output, "il"], [output, "la"]) == 0.5


def test_the_objective_of_a_task_without_one_is_likelihood():
    assert not objective_of(make_recipe({"data": {"task": "classify"}})).by_reward
    assert not objective_of(make_recipe({})).by_reward
    for task in ("translate", "chat"):
        recipe = make_recipe({"data": {"task": task}, task: {"objective": "reward", "reward": "chrf"}})
        assert objective_of(recipe).by_reward
        assert find_reward(objective_of(recipe)) is chrf


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"reward": "glue"}, 'translate.reward: there is no reward "glue"; did you mean "gleu"'),
        ({"reward": "nothing"}, 'or name a "module:function"'),
        ({"reward": "a b:c"}, "there is no reward"),
        ({"candidates": "n-best", "method": "gnmt"}, "needs random samples of the model"),
        ({"candidate_count": 1}, "at least 2"),
    ],
)
def test_wrong_settings_are_one_line(settings, problem):
    with pytest.raises(SettingsError, match=problem):
        make_recipe({"translate": settings})


def own(name):
    return find_reward(TranslateSettings(objective="reward", reward=name))


def test_a_function_of_the_user(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_rewards_a.py").write_text(
        "def short(output, reference):\n    return len(reference) - len(output)\n"
        "def none(output, reference):\n    return float('nan')\n"
        "def fails(output, reference):\n    return output['x']\n"
        "def text(output, reference):\n    return '0.5'\n"
        "def huge(output, reference):\n    return 1e308\n"
        "def lines(output, reference):\n    raise ValueError('two\\nlines')\n"
        "def exits(output, reference):\n    raise SystemExit(3)\n"
        "number = 3\n"
    )
    (tmp_path / "own_rewards_exits.py").write_text("raise SystemExit(4)\n")
    (tmp_path / "own_rewards_moves.py").write_text("import os\nos.chdir('/')\ndef zero(output, reference): return 0\n")
    before = list(sys.path)
    assert own("own_rewards_a:short")("ab", "abcd") == 2.0
    assert sys.path == before
    for name, problem in (
        ("own_rewards_a:none", "returned nan for the output 'ab'; it must return a number between"),
        ("own_rewards_a:text", "returned '0.5' for the output 'ab'; it must return a number between"),
        ("own_rewards_a:huge", "returned 1e[+]308 for the output 'ab'; it must return a number between"),
        ("own_rewards_a:lines", r"failed \(ValueError: two lines\)"),
        ("own_rewards_a:exits", r"failed \(SystemExit: 3\)"),
        ("own_rewards_a:fails", r"failed \(TypeError: .* for the output 'ab'; correct the function"),
    ):
        with pytest.raises(SettingsError, match=problem):
            own(name)("ab", "abcd")
    for name, problem in (
        ("own_rewards_a:shrt", "the module own_rewards_a has no function shrt; correct the name"),
        ("own_rewards_a:number", "has no function number, only a int of this name"),
        ("own_rewards_b:short", r"cannot import own_rewards_b \(ModuleNotFoundError"),
        ("own_rewards_exits:short", r"cannot import own_rewards_exits \(SystemExit: 4\)"),
    ):
        with pytest.raises(SettingsError, match=problem):
            own(name)
    assert own("own_rewards_moves:zero")("a", "b") == 0.0
    assert sys.path == before


def test_making_settings_imports_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_rewards_c.py").write_text("raise RuntimeError\n")
    recipe = make_recipe({"translate": {"objective": "reward", "reward": "own_rewards_c:any"}})
    assert isinstance(recipe.task, ObjectiveSettings)
    with pytest.raises(SettingsError, match=r"cannot import own_rewards_c \(RuntimeError"):
        find_reward(recipe.task)
