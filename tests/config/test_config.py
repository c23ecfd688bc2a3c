"""Settings: names, types, defaults and help."""

import dataclasses
import re

import pytest

from regard import config, registry
from regard.config import ModelSettings, Recipe
from regard.config.ranges import Share
from regard.config.recipe import describe, make_recipe, read_table, to_table, with_overrides
from regard.errors import SettingsError
from regard.models import presets, settings_of
from regard.models.recurrent import RecurrentSettings
from regard.models.transformer_settings import TransformerSettings


def test_a_recipe_holds_differences_only(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text('[train]\nseed = 7\n[data]\nsource_language = "no"\n[model]\narch = "bahdanau"\nwidth = 64\n')
    recipe = make_recipe(with_overrides(read_table(path), ["train.warmup_steps=10", "model.dropout=0"]))
    assert (recipe.train.seed, recipe.train.warmup_steps, recipe.data.source_language) == (7, 10, "no")
    assert recipe.model == dataclasses.replace(settings_of("bahdanau"), width=64, dropout=0.0)
    assert recipe.search == Recipe().search


def test_a_task_that_writes_nothing_has_no_search():
    with pytest.raises(SettingsError) as caught:
        make_recipe({"data": {"task": "tag"}, "search": {"beam_size": 2}})
    tasks = '"translate" or "chat" or "language-model" or "caption"'
    assert str(caught.value) == f'settings: [search] is for data.task = {tasks}, but data.task is "tag"'


@pytest.mark.parametrize("arch", presets("seq2seq"))
def test_tables_read_back_to_the_same_recipe(arch):
    recipe = make_recipe({"model": {"arch": arch}, "data": {"train": [{"source": "a", "weight": 2}]}})
    assert make_recipe(to_table(recipe)) == recipe


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trian.seed=2", 'settings: unknown setting "trian"; did you mean "train"?'),
        ("train.sed=2", 'settings: unknown setting "train.sed"; did you mean "train.seed"?'),
        ("tag.column=2", 'settings: [tag] is for data.task = "tag", but data.task is "translate"'),
        ("chat.context_turns=2", 'settings: [chat] is for data.task = "chat", but data.task is "translate"'),
        ("data.task=tga", 'settings: there is no task "tga"; did you mean "tag"?'),
        ("data.task=3", "settings: data.task must be a string, not 3"),
        ("train.seed=x", "settings: train.seed must be a whole number, not 'x'"),
        ("train.seed=true", "settings: train.seed must be a whole number, not True"),
        ("train.adam_betas=[0.9]", "settings: train.adam_betas must hold 2 values, not 1"),
        ("model.arch=bahdanu", 'settings: there is no architecture "bahdanu"; did you mean "bahdanau"?'),
        (
            "model.norm=prae",
            'settings: model.norm cannot be "prae" (choose from post, pre); did you mean "pre"?',
        ),
        ("model.widht=8", 'settings: transformer-small has no setting "model.widht"; did you mean "model.width"?'),
        ("model.width=100", "settings: model.width 100 is not a multiple of model.heads 3"),
        ("model.head_width=-4", "settings: model.head_width must be at least 0 and at most 65,536, not -4"),
        ("model.max_positions=-1", "settings: model.max_positions must be at least 1, not -1"),
        ("model.encoder_layers=1000", "settings: model.encoder_layers must be at least 1 and at most 256, not 1000"),
        ("model.width=31", "settings: model.width must be even, at least 2 and at most 65,536, not 31"),
        ("search.beam_size=100000", "settings: search.beam_size must be at least 1 and at most 1,000, not 100000"),
        (
            "search.max_length_extra=20000",
            "settings: search.max_length_extra must be at least 0 and at most 10,000, not 20000",
        ),
        (
            "search.max_length_ratio=2e6",
            "settings: search.max_length_ratio must be above 0 and at most 100, not 2000000.0",
        ),
        ("train.adam_betas=[0.9, 1.0]", "settings: train.adam_betas must be at least 0 and below 1, not 1.0"),
        ("train.learning_rate=nan", "settings: train.learning_rate must be a finite number, not nan"),
        ("train.batch_tokens=1", "settings: train.batch_tokens must be at least 16"),
        (f"train.seed={2**63}", "settings: train.seed must be a signed integer of 64 bits"),
        ("train.validation_sentences=-3", "settings: train.validation_sentences must be at least 0"),
        ("train.clip_norm=-1", "settings: train.clip_norm must be at least 0"),
        ("train.warmup_steps=-5", "settings: train.warmup_steps must be at least 0"),
        ("train.weight_decay=-1", "settings: train.weight_decay must be at least 0"),
        ("train.adam_betas=[2,3]", "settings: train.adam_betas must be at least 0 and below 1"),
        ("train.adam_epsilon=0", "settings: train.adam_epsilon must be above 0"),
        ("train.learning_rate=inf", "settings: train.learning_rate must be a finite number, not inf"),
        ("search.length_penalty=nan", "settings: search.length_penalty must be a finite number, not nan"),
        ("model.ffn_width=0", "settings: model.ffn_width must be at least 1"),
        ("seed=2", '--set seed=2: write it as section.key=value, e.g. "--set train.seed=2"'),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(override, message):
    table = {"model": {"heads": 3, "head_width": 0, "width": 96}} if "100" in override else {}
    with pytest.raises(SettingsError) as caught:
        make_recipe(with_overrides(table, [override]))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_missing_or_broken_recipe_is_told(tmp_path):
    with pytest.raises(SettingsError, match="cannot read the recipe"):
        read_table(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("[train\n")
    with pytest.raises(SettingsError, match=r"broken\.toml: not valid TOML"):
        read_table(broken)


@pytest.mark.parametrize(
    "section",
    [
        config.Corpus,
        config.DataSettings,
        config.TokenizerSettings,
        TransformerSettings,
        RecurrentSettings,
        config.TrainSettings,
        config.SearchSettings,
    ],
)
def test_every_setting_has_a_line_of_help(section):
    texts = describe(section)
    assert list(texts) == [field.name for field in dataclasses.fields(section)]
    assert all(text.endswith(".") for text in texts.values())


def test_every_preset_carries_its_own_name():
    assert all(preset.arch == name for name, preset in presets().items())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("embedding_width=0", "model.embedding_width must be at least 1 and at most 65,536, not 0"),
        ("residual_from_layer=-3", "model.residual_from_layer must be at least 0, not -3"),
        ("dropout=1.0", "model.dropout must be at least 0 and below 1, not 1.0"),
    ],
)
def test_ranges_of_a_recurrent_model(setting, message):
    with pytest.raises(SettingsError, match=f"^settings: {re.escape(message)}$"):
        make_recipe(with_overrides({}, ["model.arch=bahdanau", f"model.{setting}"]))


@dataclasses.dataclass(frozen=True)
class OptionalSettings(ModelSettings):
    """A setting that may be absent."""

    arch: str = "optional"
    rate: Share | None = None
    """A share, or nothing."""


PRESETS = {"optional": OptionalSettings("optional")}


def test_a_setting_may_be_optional(monkeypatch):
    monkeypatch.setitem(registry.ARCHITECTURES, "optional", __name__)
    assert make_recipe({"model": {"arch": "optional"}}).model == OptionalSettings("optional")
    recipe = make_recipe({"model": {"arch": "optional", "rate": 0.5}})
    assert recipe.model == OptionalSettings("optional", 0.5)
    assert make_recipe(to_table(recipe)) == recipe
    assert "rate" not in to_table(make_recipe({"model": {"arch": "optional"}}))["model"]
    for rate, message in (
        (1.5, "model.rate must be at least 0 and below 1, not 1.5"),
        ("x", "model.rate must be a number"),
    ):
        with pytest.raises(SettingsError, match=message):
            make_recipe({"model": {"arch": "optional", "rate": rate}})
