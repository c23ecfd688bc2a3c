"""What is measured over many sentences: kept in the run, shown by its pages, forgotten with its weights."""

import json

import pytest

from regard.cli import main
from regard.data.builtin import read_phrases
from regard.data.pairs import Pair
from regard.tasks.translate.inspect.explain import FAITHFULNESS, IDENTIFIABILITY, survey
from regard.tasks.translate.inspect.page import inspect_run
from tests.export.runs import random_recipe, random_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    made = random_run(tmp_path_factory.mktemp("survey") / "run", random_recipe())
    made.write_held_out([Pair(one.source, one.target) for one in read_phrases()[:30]])
    return made


@pytest.fixture(scope="module")
def made(run):
    return survey(run, sentences=2)


def test_a_survey_is_kept_and_shown(run, made):
    found = {"faithfulness": made.faithfulness.as_dict(), "identifiability": made.identifiability.as_dict()}
    found = json.loads(json.dumps(found))
    assert "tokens identified by" in str(made)
    methods = {row["name"] for row in found["faithfulness"]["rows"]}
    assert methods >= {"attention", "rollout", "gradient", "integrated", "occlusion", "alti"}
    assert found["identifiability"]["candidates"] == "vocabulary"
    for name, key in ((FAITHFULNESS, "faithfulness"), (IDENTIFIABILITY, "identifiability")):
        kept = json.loads((run.folder / name).read_text())
        assert kept.pop("weights")
        assert kept == found[key]
    assert inspect_run(run, "I am here.", quick=True)["identifiability"]["places"]


@pytest.mark.usefixtures("made")
def test_other_weights_make_it_stale(run):
    path = run.folder / IDENTIFIABILITY
    kept = json.loads(path.read_text())
    path.write_text(json.dumps(kept | {"weights": "of another model"}))
    assert inspect_run(run, "I am here.", quick=True)["identifiability"] is None
    path.write_text(json.dumps(kept))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["I am here.", "--measure"], "leave out the text"),
        (["--measure", "--sentences", "4"], "--sentences must be at least 20"),
        (["--measure", "--pairs", "none.tsv"], "none.tsv"),
        ([], "there is no text to inspect; give one, or --measure"),
    ],
)
def test_what_cannot_be_surveyed(run, options, said, capsys):
    assert main(["inspect", str(run.folder), *options]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert said in line


def test_a_run_without_held_out_pairs_says_so(tmp_path, capsys):
    bare = random_run(tmp_path / "bare", random_recipe())
    assert main(["inspect", str(bare.folder), "--measure"]) == 2
    assert "has no held-out pairs; give pairs with --pairs" in capsys.readouterr().err
