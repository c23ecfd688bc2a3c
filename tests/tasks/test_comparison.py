"""`regard compare`: the comparison file, its mistakes, and that an interrupted comparison gives the same table."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regard.config import Corpus
from regard.errors import CorpusError, RegardError, RunError, SettingsError
from regard.run import PREPARING
from regard.system import exclusive, usable_cores
from regard.tasks.comparison import compare, trend
from regard.tasks.comparison_recipe import Comparison, only, read_comparison
from regard.tasks.translate.compare import check_data, read_pairs, table
from tests import processes
from tests.small_runs import SETTINGS, write_corpus

STEPS = 16
MEASURED = ("seconds", "memory", "sentences_per_second", "created")
"""Names of results that differ between two comparisons with the same settings."""


def write(folder: Path, systems: str, budget: str = f"budget.steps = {STEPS}", **lines: str) -> Path:
    """A comparison file of small Transformers, with its corpus."""
    if not (folder / "train.en").is_file():
        write_corpus(folder)
    sections: dict[str, list[str]] = {"tokenizer": [], "train": [], "search": []}
    for setting in SETTINGS:
        name, value = setting.split("=")
        section, key = name.split(".")
        if section in sections:
            sections[section].append(f"{key} = {value}" if value[0].isdigit() else f'{key} = "{value}"')
    data = [
        f'{part} = [{{ source = "{folder}/{part}.en", target = "{folder}/{part}.it" }}]'
        for part in ("train", "valid", "test")
    ]
    sections["data"] = [*data, 'source_language = "en"', 'target_language = "it"']
    sections = {name: [lines[name]] if name in lines else rows for name, rows in sections.items()}
    text = "\n".join(
        [lines.get("top", ""), budget, *(f"[{name}]\n" + "\n".join(rows) for name, rows in sections.items())]
    )
    path = folder / "compare.toml"
    path.write_text(f"{text}\n{systems}\n", encoding="utf-8")
    return path


SMALL = "\n".join(line.replace("=", " = ") for line in SETTINGS if line.startswith("model."))
ONE = f'[systems.one]\nmodel.arch = "transformer-tiny"\n{SMALL}\n'
TWO = ONE + ONE.replace("one", "two").replace("width = 32", "width = 16")


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    text = TWO + '[systems.tuned]\nfinetune = "one"\nshare = 0.25\n[systems.both]\nensemble = "one"\nmembers = 3\n'
    return read_comparison(write(tmp_path, text, top="seeds = [1, 5]"))


def test_budget_of_each_training(comparison: Comparison) -> None:
    [[run]] = comparison.runs(comparison.find("two"), 5)
    assert run.name == "two-5"
    assert (run.table["train"]["max_steps"], run.table["train"]["seed"]) == (STEPS, 5)
    assert "test" not in run.table["data"]
    [[base, tuned]] = comparison.runs(comparison.find("tuned"), 1)
    assert (base.table["train"]["max_steps"], tuned.table["train"]["max_steps"]) == (12, 4)
    assert tuned.base == base.name
    assert base.table["model"] == run.table["model"] | {"width": 32}
    members = comparison.runs(comparison.find("both"), 1)
    assert [steps[0].name for steps in members] == ["one-1", "one-2", "one-3"]


def test_only_keeps_what_a_system_is_made_from(comparison: Comparison, tmp_path: Path) -> None:
    members = '[systems.tuned]\nfinetune = "one"\n[systems.both]\nensemble = "tuned"\n'
    nested = read_comparison(write(tmp_path, TWO + members))
    assert [system.name for system in only(nested, ["both"]).systems] == ["one", "tuned", "both"]
    assert [system.name for system in only(comparison, ["both"]).systems] == ["one", "both"]
    with pytest.raises(SettingsError, match='--only botj: there is no such system; did you mean "both"'):
        only(comparison, ["botj"])


@pytest.mark.parametrize(
    ("systems", "lines", "message"),
    [
        ("", {}, "has no systems"),
        (ONE, {"budget": ""}, "give one budget"),
        (ONE, {"budget": "budget.steps = 3\nbudget.minutes = 1"}, "give one budget"),
        (ONE, {"budget": "budget.stepps = 3"}, 'did you mean "budget.steps"|did you mean "steps"'),
        (ONE, {"top": "seeds = 3"}, "seeds must be a list of whole numbers"),
        (ONE, {"top": "seeds = []"}, "seeds must be a list of whole numbers"),
        (ONE, {"top": 'titel = "x"'}, 'unknown section "titel"; did you mean "title"'),
        (ONE, {"top": 'measure = "reach"'}, "measure must be a list of complexity and reach, not 'reach'"),
        (ONE, {"top": 'measure = ["length"]'}, "measure must be a list of complexity and reach"),
        (ONE + "[[published]]\nBLEU = 3", {}, "with a name"),
        (ONE, {"data": 'source_language = "en"'}, "has no training data"),
        (ONE.replace("one", '"a/b"'), {}, "use letters, digits"),
        (ONE.replace("one", '"<script>"'), {}, "use letters, digits"),
        (ONE.replace("one", '".."'), {}, "use letters, digits"),
        (ONE.replace("one", r'"a\nb"'), {}, "use letters, digits"),
        (ONE.replace("one", "x" * 200), {}, "the name is too long"),
        (ONE, {"top": 'title = ["x"]'}, "title must be a text"),
        (ONE + "[[published]]\nname = 3", {}, "with a name"),
        (ONE + '[[published]]\nname = "x"\nyear = 2017-06-12', {}, "year must be a number or a text"),
        (ONE + '[[published]]\nname = "x"\nBLEU = nan', {}, "BLEU must be a number or a text"),
        (ONE + 'published = "papr"\n[[published]]\nname = "paper"', {}, 'no row "papr".*did you mean "paper"'),
        (ONE + "members = 3", {}, "members has no effect without ensemble"),
        (ONE + "share = 0.5", {}, "share has no effect without finetune"),
        (TWO + '[systems.a]\nensemble = "one"\nfinetune = "two"', {}, "leave out finetune or ensemble"),
        (
            TWO + '[systems.a]\nensemble = "one"\nmodel.width = 3',
            {},
            "has the settings of its members; leave out model",
        ),
        (TWO + '[systems.a]\nfinetune = "one"\nmodel.width = 3', {}, "model comes from one in fine-tuning"),
        (TWO + '[systems.a]\nfinetune = "one"\ndata.valid = []', {}, "data comes from one in fine-tuning"),
        (ONE + 'data.task = "chat"', {}, "data.task must be the same for all systems"),
        (ONE + "data.test = []", {}, "data.test must be the same for all systems"),
        (ONE + "train.max_minutes = 1", {}, "train.max_minutes: the budget ends each training; set budget.minutes"),
        (ONE, {"train": "max_flops = 1e9"}, "train.max_flops: the budget ends each training; set budget.flops"),
        ("[systems]\none = 3", {}, r"\[systems.one\] must be a table"),
        ('[systems.one]\narch = "transformer-tiny"', {}, '"arch" is not a section of settings'),
        ('[systems.one]\nensemble = "two"', {}, 'ensemble: there is no system "two"'),
        ('[systems.one]\nensemble = "one"', {}, 'ensemble: there is no system "one"'),
        (TWO + '[systems.more]\nensemble = "one"\nmembers = 1', {}, "at least 2 members"),
        (TWO + '[systems.more]\nensemble = "one"\nmembers = "3"', {}, "members must be of the type int"),
        (TWO + '[systems.more]\nfinetune = "one"\nshare = 1', {}, "share must be between 0 and 1"),
        (
            TWO + '[systems.a]\nensemble = "one"\n[systems.b]\nfinetune = "a"',
            {},
            "a is not trained from the beginning",
        ),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, systems: str, lines: dict[str, str], message: str) -> None:
    with pytest.raises(RegardError, match=message) as raised:
        read_comparison(write(tmp_path, systems, **lines))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("systems", "message"),
    [
        (TWO.replace("width = 16", "widht = 16"), r"\[systems.two\].*did you mean"),
        ('[systems.one]\nmodel.arch = "transformer-tny"', 'there is no architecture "transformer-tny"'),
        ('[systems.one]\nmodel.arch = "han"', 'is not for data.task = "translate"'),
    ],
)
def test_mistakes_in_settings_are_found_before_the_first_training(tmp_path: Path, systems: str, message: str) -> None:
    read = read_comparison(write(tmp_path, systems))
    with pytest.raises(SettingsError, match=message):
        compare(read, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_settings_of_all_seeds_are_checked(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"\[systems.one\].*train.seed"):
        compare(read_comparison(write(tmp_path, ONE, top=f"seeds = [1, {2**64}]")), tmp_path / "out")


@pytest.mark.parametrize("part", ["train", "valid", "test"])
@pytest.mark.parametrize("content", [None, ""])
def test_data_is_read_before_the_first_training(tmp_path: Path, part: str, content: str | None) -> None:
    read = read_comparison(write(tmp_path, ONE))
    for path in tmp_path.glob(f"{part}.*"):
        path.unlink() if content is None else path.write_text(content)
    with pytest.raises(CorpusError, match=r"no such file|contains no sentence pairs|is empty"):
        compare(read, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([10, 20, 30], ""),  # too few
        ([10, 20, 30, 31, 31.1, 31.2], "flat"),
        ([10, 20, 30, 31, 32, 33], "rising"),
        ([10, 20, 30, 31, 30, 29], "flat"),
    ],
)
def test_trend(scores: list[float], expected: str) -> None:
    assert trend([{"bleu": score, "seconds": place + 1} for place, score in enumerate(scores)], "bleu") == expected


def steady(value: Any) -> Any:
    """Results without what is measured in seconds and bytes."""
    if isinstance(value, dict):
        return {name: steady(item) for name, item in value.items() if name not in MEASURED}
    return [steady(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A whole comparison from the command line: its folder and its results."""
    folder = tmp_path_factory.mktemp("comparison")
    text = TWO + '[systems.both]\nensemble = "one"\n'
    path = write(folder, text, top='title = "Two widths"\npublished = [{ name = "paper", BLEU = 27.3, "a|b" = "<i>" }]')
    jobs = min(2, usable_cores())
    done = processes.run("compare", path, "--out", folder / "out", "--seeds", "1,2", "--jobs", jobs, "--json")
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_results(finished: tuple[Path, dict[str, Any]]) -> None:
    folder, found = finished
    assert sorted(path.name for path in (folder / "out" / "runs").iterdir() if path.is_dir()) == [
        "one-1", "one-2", "two-1", "two-2",
    ]  # fmt: skip
    assert [system["name"] for system in found["systems"]] == ["one", "two", "both"]
    one, two, both = found["systems"]
    assert one["step"] == two["step"] == STEPS
    assert both["step"] == 2 * STEPS
    assert both["parameters"] == 2 * one["parameters"] > 2 * two["parameters"]
    assert both["flops"] == pytest.approx(2 * one["flops"], rel=0.05)
    assert [len(found["scores"][name]["seeds"]["chrf"]) for name in ("one", "two", "both")] == [2, 2, 1]
    scores = found["scores"]["one"]
    assert scores["chrf"] == pytest.approx(sum(scores["seeds"]["chrf"]) / 2)
    assert len(found["differences"]) == 3 * 2  # pairs of systems, metrics
    assert [point["flops"] for point in one["curve"]] == sorted(point["flops"] for point in one["curve"])
    assert one["memory"] > 1e7
    assert json.loads((folder / "out" / "compare.json").read_text()) == found
    markdown = (folder / "out" / "compare.md").read_text()
    assert markdown.startswith("# Two widths\n")
    assert re.search(r"^\| system \| BLEU \| a\\\|b \|\n.*\n\| paper \| 27.3 \| &lt;i> \|$", markdown, re.MULTILINE)
    assert found["verdict"] in markdown


def test_finished_systems_are_not_trained_again(finished: tuple[Path, dict[str, Any]]) -> None:
    folder, found = finished
    lines: list[str] = []
    again = compare(read_comparison(folder / "compare.toml", {"seeds": [1, 2]}), folder / "out", lines.append)
    assert not any("training" in line for line in lines)
    assert steady(again) == steady(found)


def test_other_settings_in_the_same_folder(finished: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = finished
    read = read_comparison(folder / "compare.toml", {"seeds": [1, 2], "budget": {"steps": STEPS + 1}})
    with pytest.raises(RunError, match="has other settings than the comparison; choose another --out"):
        compare(read, folder / "out")


def test_trainings_side_by_side_write_their_output_to_files(finished: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = finished
    if usable_cores() == 1:
        pytest.skip("needs two processor cores")
    assert "BLEU" in (folder / "out" / "runs" / "one-1.log").read_text()


@pytest.mark.parametrize("jobs", [0, usable_cores() + 1])
def test_number_of_jobs(comparison: Comparison, tmp_path: Path, jobs: int) -> None:
    with pytest.raises(SettingsError, match=f"--jobs {jobs}: must be between 1 and the number of processor cores"):
        compare(comparison, tmp_path / "out", jobs=jobs)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("budget", "clock", "expected"),
    [
        ("budget.minutes = 15", "wall", "15 minutes"),
        ("budget.minutes = 15", "processor", "15 minutes of processor time"),
        (f"budget.steps = {STEPS}", "processor", f"{STEPS} steps"),
    ],
)
def test_description_of_the_budget(tmp_path: Path, budget: str, clock: str, expected: str) -> None:
    read = read_comparison(write(tmp_path, ONE, budget, train=f'clock = "{clock}"'))
    assert read.describe_budget() == expected


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: "{", "cannot read the result"),
        (lambda text: text.replace('"seconds": ', '"seconds": 1', 1), "damaged or changed"),
        (lambda text: '{"format": 2, "sha256": ""}', "damaged or changed"),
        (lambda text: '{"format": 1}', "is not a result of this version"),
        (lambda text: "[]", "is not a result of this version"),
    ],
)
def test_damaged_result(
    finished: tuple[Path, dict[str, Any]], tmp_path: Path, damage: Callable[[str], str], message: str
) -> None:
    folder, _ = finished
    (tmp_path / "systems").mkdir()
    text = (folder / "out" / "systems" / "one-1.json").read_text()
    (tmp_path / "systems" / "one-1.json").write_text(damage(text))
    with pytest.raises(RunError, match=f"{message}.*; remove this file"):
        compare(read_comparison(folder / "compare.toml"), tmp_path)


def test_other_data_in_the_same_folder(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    folder, _ = finished
    other = {"test": [{"source": str(folder / "valid.en"), "target": str(folder / "valid.it")}]}
    read = read_comparison(folder / "compare.toml", {"seeds": [1, 2], "data": other})
    with pytest.raises(RunError, match=r"has other test data than the comparison;.* remove the folder systems"):
        compare(read, folder / "out")


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"table": {}}'])
def test_damaged_settings_of_a_finished_training(
    finished: tuple[Path, dict[str, Any]], tmp_path: Path, content: str | None
) -> None:
    folder, _ = finished
    shutil.copytree(folder / "out" / "runs", tmp_path / "runs")
    job = tmp_path / "runs" / "one-1.json"
    job.unlink() if content is None else job.write_text(content)
    with pytest.raises(RunError, match=r"one-1.*(cannot read the settings|other settings).*trained again"):
        compare(only(read_comparison(folder / "compare.toml"), ["one"]), tmp_path)


def test_a_training_that_was_killed_while_its_data_was_prepared_starts_again(
    finished: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, found = finished
    shutil.copytree(folder / "out", tmp_path / "out")
    (tmp_path / "out" / "systems" / "one-1.json").unlink()
    (tmp_path / "out" / "runs" / "one-1" / PREPARING).touch()
    again = compare(read_comparison(folder / "compare.toml", {"seeds": [1, 2]}), tmp_path / "out")
    assert steady(again) == steady(found)


def test_a_warning_of_test_pairs_in_the_training_data(tmp_path: Path) -> None:
    read = read_comparison(write(tmp_path, ONE))
    assert check_data(read.data) == ""
    for side in ("en", "it"):
        lines = [(tmp_path / f"{part}.{side}").read_text().splitlines()[0] for part in ("test", "train", "test")]
        (tmp_path / f"test.{side}").write_text("\n".join([*lines, "Ciao."]) + "\n")
    assert check_data(read.data).startswith("warning: 1 of 3 test pairs are in the training data")


def test_few_test_sentences(finished: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = finished
    data = read_comparison(folder / "compare.toml").data
    pairs = read_pairs(data)[:3]
    for side, texts in (("en", [pair.source for pair in pairs]), ("it", [pair.target for pair in pairs])):
        (folder / f"few.{side}").write_text("\n".join(texts) + "\n")
    few = replace(data, test=(Corpus(str(folder / "few.en"), str(folder / "few.it")),))
    answers = {name: [{"translations": texts, "seconds": 1.0}] for name, texts in (("a", ["x"] * 3), ("b", ["y"] * 3))}
    assert table(answers, few)["verdict"].endswith("but 3 sentences are too few for a test.")


@pytest.mark.parametrize("out", ["compare.toml", "compare.toml/x"])
def test_a_folder_that_cannot_be_made(comparison: Comparison, tmp_path: Path, out: str) -> None:
    with pytest.raises(RunError, match=r"compare\.toml.*: cannot write here .*; choose another --out"):
        compare(comparison, tmp_path / out)


def test_two_comparisons_in_one_folder(comparison: Comparison, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with (
        exclusive(tmp_path / "out" / ".lock"),
        pytest.raises(RunError, match="another comparison works in this folder"),
    ):
        compare(comparison, tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_interrupted_comparison_gives_the_same_table(
    finished: tuple[Path, dict[str, Any]], tmp_path: Path, number: signal.Signals
) -> None:
    folder, found = finished
    command = ["compare", folder / "compare.toml", "--out", tmp_path, "--seeds", "1,2"]
    started = processes.start(*command, errors=tmp_path / "errors.txt")
    while not (tmp_path / "runs" / "two-1" / "metrics.jsonl").is_file():
        assert started.poll() is None, (tmp_path / "errors.txt").read_text()
        time.sleep(0.05)
    started.send_signal(number)
    assert started.wait(120) in (130, 143, -signal.SIGKILL)
    assert not (tmp_path / "compare.json").exists()
    done = processes.run(*command, "--json")
    assert done.returncode == 0, done.stderr
    assert steady(json.loads(done.stdout)) == steady(found)


def test_a_system_that_is_fine_tuned_with_a_reward(tmp_path: Path) -> None:
    text = ONE + '[systems."one + reward"]\nfinetune = "one"\nshare = 0.25\ntranslate.objective = "reward"\n'
    found = compare(read_comparison(write(tmp_path, text)), tmp_path / "out")
    base, tuned = found["systems"]
    assert (tuned["finetuned"], tuned["step"]) == ("one", STEPS)
    assert "reward" in tuned["curve"][-1]
    assert "reward" not in base["curve"][-1]
    wrong = ONE + '[systems.reward]\nfinetune = "one"\ntranslate.objective = "rewrd"\n'
    with pytest.raises(SettingsError, match=r"translate\.objective cannot be .rewrd."):
        compare(read_comparison(write(tmp_path, wrong)), tmp_path / "other")
