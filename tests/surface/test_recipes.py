"""Every recipe loads, and every architecture has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.config.recipe import find_task, make_recipe, read_table
from regard.models import presets
from regard.models.transformer_settings import TransformerSettings
from regard.tasks.comparison_recipe import check_settings, read_comparison

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))
COMPARISONS = sorted((Path(__file__).parents[2] / "recipes" / "compare").glob("*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_loads_and_names_a_preset(path: Path) -> None:
    recipe = make_recipe(read_table(path), where=str(path))
    task = find_task(recipe.data.task)
    assert recipe.model.arch in presets(task.model_kind)
    assert recipe.data.train
    if task.model_kind == "seq2seq":
        assert recipe.data.source_language or recipe.pictures.images
        assert recipe.data.target_language


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_says_how_to_run_it(path: Path) -> None:
    assert f"#     regard train recipes/{path.name}\n" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("arch", presets("seq2seq"))
def test_every_architecture_has_a_recipe(arch: str) -> None:
    assert make_recipe(read_table(Path(__file__).parents[2] / "recipes" / f"{arch}.toml")).model.arch == arch


@pytest.mark.parametrize("arch", ["transformer-base", "transformer-big"])
def test_the_papers_models_are_trained_as_in_the_paper(arch: str) -> None:
    """Vaswani et al. 2017, sections 5.1 to 5.4 and 6.1."""
    recipe = make_recipe(read_table(Path(__file__).parents[2] / "recipes" / f"{arch}.toml"))
    assert recipe.model == presets("seq2seq")[arch]
    assert isinstance(recipe.model, TransformerSettings)
    assert recipe.tokenizer.vocab_size == 37_000
    assert recipe.train.batch_tokens * recipe.train.gradient_accumulation == 25_000
    assert (recipe.train.adam_betas, recipe.train.adam_epsilon) == ((0.9, 0.98), 1e-9)
    assert (recipe.train.warmup_steps, recipe.train.label_smoothing) == (4000, 0.1)
    assert recipe.train.learning_rate == pytest.approx(recipe.model.width**-0.5 * 4000**-0.5, rel=1e-3)
    assert recipe.train.max_steps == {"transformer-base": 100_000, "transformer-big": 300_000}[arch]
    search = recipe.search
    assert (search.beam_size, search.length_penalty, search.length_penalty_form) == (4, 0.6, "gnmt")
    assert (search.max_length_ratio, search.max_length_extra) == (1.0, 50)


@pytest.mark.parametrize("path", COMPARISONS, ids=lambda path: path.stem)
def test_a_comparison_loads_and_all_its_settings_are_valid(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert f"#     regard compare recipes/compare/{path.name} --out " in text
    corpus = [{"source": "a.en", "target": "a.de"}]
    found = read_comparison(path, {"data": {"train": corpus, "valid": corpus, "test": corpus}})
    check_settings(found)
    named = {row["name"] for row in found.published}
    assert {system.published for system in found.systems if system.published} <= named
