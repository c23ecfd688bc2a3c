"""The plan: chosen from numbers, overruled by what the user says."""

import dataclasses
from types import SimpleNamespace

import pytest

from regard.config.recipe import make_recipe
from regard.tasks.translate.plan import PairFacts, fit_memory, make_plan
from regard.tasks.translate.training import TRAINING
from regard.training.device import Machine
from regard.training.plan import merge

LAPTOP = Machine("cpu", cores=2, memory=8e9, peak=2e11)
GPU = Machine("some GPU", cores=8, memory=24e9, peak=2e13)


def estimate(recipe, corpus, machine):
    return TRAINING.estimate(recipe, SimpleNamespace(facts=lambda: corpus), machine)


def resolve(corpus, machine=LAPTOP, given=None):
    return make_recipe(merge(make_plan(corpus, machine, given or {}), given or {}))


@pytest.mark.parametrize("machine", [LAPTOP, GPU])
@pytest.mark.parametrize("pairs", [100, 29_000, 200_000, 5_000_000])
def test_every_choice_is_a_setting_with_a_reason(pairs, machine):
    plan = make_plan(PairFacts(pairs, 60.0, 130.0), machine, {})
    assert all(choice.reason for choice in plan)
    assert len({choice.name for choice in plan}) == len(plan)
    make_recipe(merge(plan, {}))  # every name and value fits


@pytest.mark.parametrize(("pairs", "shape"), [(10_000, (4, 4, 128, 256)), (29_000, (3, 3, 192, 512))])
def test_little_data_gets_a_model_near_the_published_tiny_one(pairs, shape):
    model = resolve(PairFacts(pairs, 60.0)).model
    assert (model.encoder_layers, model.decoder_layers, model.width, model.ffn_width) == shape
    assert model.dropout >= 0.2


def test_more_data_gets_more():
    recipes = [resolve(PairFacts(pairs, 60.0), GPU) for pairs in (5_000, 29_000, 300_000, 5_000_000)]
    assert [recipe.tokenizer.vocab_size for recipe in recipes] == sorted(
        recipe.tokenizer.vocab_size for recipe in recipes
    )
    assert [recipe.model.width for recipe in recipes] == [128, 192, 256, 512]
    assert recipes[0].model.dropout > recipes[-1].model.dropout


def test_a_cpu_is_not_asked_for_what_it_cannot_do():
    assert resolve(PairFacts(5_000_000, 60.0), LAPTOP).model.arch == "transformer-small"


def test_a_batch_holds_several_of_the_longest_sentences():
    short, long = (resolve(PairFacts(29_000, mean, longest)) for mean, longest in ((60.0, 130.0), (600.0, 2500.0)))
    assert short.train.batch_tokens == 2048
    assert long.train.batch_tokens >= 8 * 2500 / 4


def test_what_the_user_says_stands_and_the_rest_follows():
    given = {"model": {"arch": "bahdanau"}, "tokenizer": {"vocab_size": 500}, "train": {"warmup_steps": 7}}
    plan = make_plan(PairFacts(29_000, 60.0), LAPTOP, given)
    recipe = make_recipe(merge(plan, given))
    assert recipe.model.arch == "bahdanau"
    assert recipe.model.dropout == 0.2  # the preset's own, not the plan's
    assert (recipe.tokenizer.vocab_size, recipe.train.warmup_steps) == (500, 7)
    assert not {choice.name for choice in plan} & {
        "model.arch",
        "model.dropout",
        "tokenizer.vocab_size",
        "train.warmup_steps",
    }


@pytest.mark.parametrize(
    ("model", "quiet"),
    [
        ({}, True),
        ({"arch": "transformer-mini"}, True),
        ({"arch": "transformer-small"}, True),
        ({"arch": "transformer-small", "norm": "post"}, False),
        ({"norm": "post"}, False),
        ({"arch": "luong-dot"}, False),
    ],
)
def test_transformers_with_norms_before_start_quietly(model, quiet):
    recipe = resolve(PairFacts(29_000, 60.0), given={"model": model})
    assert recipe.train.zero_init_residual == quiet


@pytest.mark.parametrize("machine", [LAPTOP, GPU])
@pytest.mark.parametrize("pairs", [10_000, 29_000, 200_000, 5_000_000])
def test_naming_the_architecture_of_the_plan_changes_nothing(pairs, machine):
    corpus = PairFacts(pairs, 60.0)
    planned = resolve(corpus, machine)
    assert resolve(corpus, machine, {"model": {"arch": planned.model.arch}}) == planned


def test_naming_another_transformer_decides_its_sizes_alone():
    model = resolve(PairFacts(29_000, 60.0), given={"model": {"arch": "transformer-base"}}).model
    assert (model.width, model.ffn_width, model.encoder_layers) == (512, 2048, 6)
    assert (model.positional_encoding, model.norm, model.dropout) == ("rotary", "pre", 0.3)
    given = {"arch": "transformer-base", "positional_encoding": "learned", "dropout": 0.15, "norm": "post"}
    model = resolve(PairFacts(29_000, 60.0), given={"model": given}).model
    assert (model.positional_encoding, model.norm, model.dropout) == ("learned", "post", 0.15)
    assert (
        resolve(PairFacts(29_000, 60.0), given={"model": {"position_mode": "concatenate"}}).model.positional_encoding
        == "sinusoidal"
    )


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "character"])
def test_the_plan_suits_the_kind_of_tokenizer(kind):
    tokenizer = resolve(PairFacts(29_000, 60.0), given={"tokenizer": {"kind": kind}}).tokenizer
    assert bool(tokenizer.subword_regularization) == (kind in ("bpe", "unigram"))
    assert tokenizer.vocab_size == (32_000 if kind == "word" else 6000)


@pytest.mark.parametrize(("pairs", "width"), [(29_000, 256), (300_000, 512)])
def test_recurrent_models_are_no_larger_than_their_data(pairs, width):
    for arch in ("bahdanau", "luong-general", "gnmt"):
        model = resolve(PairFacts(pairs, 60.0), given={"model": {"arch": arch}}).model
        assert (model.width, model.embedding_width) == (width, width)
    assert resolve(PairFacts(pairs, 60.0), given={"model": {"arch": "gnmt", "width": 64}}).model.embedding_width == 1024


def test_bytenet_gets_characters_and_is_planned_in_them():
    corpus, given = PairFacts(29_000, 60.0, 130.0), {"model": {"arch": "bytenet"}}
    plan = {choice.name: choice.value for choice in make_plan(corpus, LAPTOP, given)}
    assert plan["tokenizer.kind"] == "character"
    assert "tokenizer.subword_regularization" not in plan
    assert plan["train.validate_every"] == round(29_000 * 61 / (0.9 * plan["train.batch_tokens"]))  # steps per epoch
    recipe = resolve(corpus, given=given)
    assert estimate(recipe, corpus, LAPTOP).epochs == pytest.approx(60, rel=0.01)
    assert resolve(corpus, given=given | {"tokenizer": {"kind": "bpe"}}).tokenizer.kind == "bpe"
    assert "tokenizer.kind" not in {choice.name for choice in make_plan(corpus, LAPTOP, {"model": {"arch": "gnmt"}})}


def test_deep_att_is_trained_by_muon_at_the_size_of_its_preset():
    recipe = resolve(PairFacts(29_000, 60.0), given={"model": {"arch": "deep-att"}})
    assert (recipe.train.optimizer, recipe.train.muon_learning_rate) == ("muon", 0.005)
    assert (recipe.model.width, recipe.model.embedding_width, recipe.model.encoder_layers) == (128, 256, 5)


@pytest.mark.parametrize("arch", ["convs2s", "bytenet", "gnmt", "bahdanau"])
def test_models_are_trained_by_muon_and_are_no_larger_than_their_data(arch):
    recipe = resolve(PairFacts(29_000, 60.0), given={"model": {"arch": arch}})
    assert (recipe.train.optimizer, recipe.model.width) == ("muon", 256)


def test_hran_is_trained_by_adam():
    assert resolve(PairFacts(29_000, 60.0), given={"model": {"arch": "hran"}}).train.optimizer == "adam"


def test_an_estimate_counts_the_model():
    recipe = resolve(PairFacts(29_000, 60.0))
    corpus = PairFacts(29_000, 60.0)
    found = estimate(recipe, corpus, LAPTOP)
    assert found.epochs == pytest.approx(60, rel=0.01)
    width, inner, words = 192, 512, recipe.tokenizer.vocab_size
    encoder, decoder = 3 * (4 * width**2 + 2 * width * inner), 3 * (8 * width**2 + 2 * width * inner)
    assert found.parameters == pytest.approx(words * width + encoder + decoder, rel=0.02)  # and biases, norms
    by_hand = 6 * 29_000 * 16 * (encoder + decoder + words * width)  # 60 / 4 + 1 tokens; attention itself is small
    assert found.epoch_flops == pytest.approx(by_hand, rel=0.05)
    assert found.epoch_seconds == pytest.approx(2 * found.epoch_flops / LAPTOP.peak)
    assert "20 minutes are about" in found.describe(20.0)
    assert "minutes" not in found.describe()
    assert "all 60 epochs about" in found.describe()


@pytest.mark.parametrize(
    ("pairs", "given", "epochs"),
    [
        (29_000, {}, 60),
        (29_000, {"max_minutes": 0.0}, 60),
        (29_000, {"max_minutes": 20.0}, None),
        (29_000, {"max_steps": 900}, None),
        (300_000, {}, None),
    ],
)
def test_little_data_is_seen_so_often_and_no_more(pairs, given, epochs):
    plan = {choice.name: choice.value for choice in make_plan(PairFacts(pairs, 60.0), LAPTOP, {"train": given})}
    assert plan.get("train.max_steps") == (epochs and epochs * plan["train.validate_every"])


def test_an_epoch_is_counted_in_the_updates_that_were_asked_for():
    train = {"batch_tokens": 1024, "gradient_accumulation": 4}
    large, usual = (resolve(PairFacts(29_000, 60.0), given={"train": given}).train for given in (train, {}))
    assert large.validate_every == pytest.approx(usual.validate_every / 2, abs=1)


def test_who_asks_for_adam_gets_its_rates():
    train = resolve(PairFacts(29_000, 60.0), given={"train": {"optimizer": "adam"}}).train
    assert (train.optimizer, train.learning_rate, train.warmup_steps) == ("adam", 1e-3, 100)


def test_a_short_epoch_gets_more_of_them():
    train = resolve(PairFacts(3_000, 60.0)).train
    assert (train.max_steps, train.validate_every) == (6000, 100)


def test_short_memory_gets_smaller_batches_and_the_same_update():
    corpus, narrow = PairFacts(300_000, 60.0), Machine("cpu", cores=2, memory=0.9e9, peak=2e11)
    plan = make_plan(corpus, narrow, {})
    wanted = make_recipe(merge(plan, {}))
    fitted = make_recipe(merge(fit_memory(plan, wanted, corpus, narrow), {}))
    assert fitted.train.batch_tokens < wanted.train.batch_tokens
    assert fitted.train.batch_tokens * fitted.train.gradient_accumulation == wanted.train.batch_tokens
    assert estimate(fitted, corpus, narrow).memory <= narrow.memory
    assert fit_memory(plan, wanted, corpus, GPU) == plan
    said = {"train": {"gradient_accumulation": 3}}
    accumulating = make_recipe(merge(plan, said))
    smaller = {choice.name: choice.value for choice in fit_memory(plan, accumulating, corpus, narrow)}
    assert smaller["train.batch_tokens"] < wanted.train.batch_tokens
    assert "train.gradient_accumulation" not in smaller  # which was said
    assert fit_memory(plan, accumulating, corpus, GPU) == plan


def test_sharding_gets_adam():
    assert resolve(PairFacts(29_000, 60.0), GPU, {"train": {"fsdp": True}}).train.optimizer == "adam"
    assert resolve(PairFacts(29_000, 60.0), GPU).train.optimizer == "muon"


def test_bfloat16_is_taken_where_a_cpu_multiplies_in_it_much_faster():
    corpus, quick = PairFacts(29_000, 60.0), dataclasses.replace(LAPTOP, bfloat16_speedup=2.1)
    assert resolve(corpus).train.precision == "auto"
    assert resolve(corpus, dataclasses.replace(LAPTOP, bfloat16_speedup=1.2)).train.precision == "auto"
    assert (
        resolve(corpus, dataclasses.replace(GPU, bfloat16_speedup=8.0)).train.precision == "auto"
    )  # which asks the device
    assert resolve(corpus, quick).train.precision == "bfloat16"
    assert resolve(corpus, quick, {"model": {"arch": "bahdanau"}}).train.precision == "bfloat16"
    assert resolve(corpus, quick, {"train": {"precision": "float32"}}).train.precision == "float32"
    sooner, later = (estimate(resolve(corpus, machine), corpus, machine) for machine in (quick, LAPTOP))
    assert sooner.epoch_seconds < later.epoch_seconds
