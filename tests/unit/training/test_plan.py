"""The plan: chosen from numbers, overruled by what the user says."""

from regard.recipe import make_recipe
from regard.training.plan import Corpus, make_plan, merge


def test_every_choice_is_a_setting_with_a_reason():
    for pairs in (100, 29_000, 200_000, 5_000_000):
        plan = make_plan(Corpus(pairs, 60.0))
        table, used = merge(plan, {})
        assert used == plan
        assert all(choice.reason for choice in plan)
        make_recipe(table)  # every name and value fits


def test_small_data_gets_a_small_model_with_much_dropout():
    small, large = (make_recipe(merge(make_plan(Corpus(pairs, 60.0)), {})[0]) for pairs in (29_000, 5_000_000))
    assert (small.model.width, small.model.inner, small.model.dropout) == (128, 256, 0.3)
    assert large.model.arch == "transformer-base"
    assert small.tokenizer.size < large.tokenizer.size


def test_what_the_user_says_stands():
    given = {"model": {"arch": "bahdanau"}, "tokenizer": {"size": 500}}
    table, used = merge(make_plan(Corpus(29_000, 60.0)), given)
    recipe = make_recipe(table)
    assert recipe.model.arch == "bahdanau"
    assert recipe.model.dropout == 0.2  # the preset's own, not the plan's
    assert recipe.tokenizer.size == 500
    assert not any(choice.name.startswith("model.") or choice.name == "tokenizer.size" for choice in used)
