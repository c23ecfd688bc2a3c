"""A small tagger of frames from file to report, and what its commands say."""

import json
import re

import numpy as np
import pytest

import regard
from regard.cli import main
from regard.config import Corpus, DataSettings
from regard.config.recipe import make_recipe
from regard.data.series import Series
from regard.errors import CorpusError, RunError
from regard.run import Run
from regard.tasks.api import FieldError
from regard.tasks.tag import api
from regard.tasks.tag.frames.data import TrainingFrames, hold_out_frames, shifts, training_windows
from regard.tasks.tag.frames.tagger import FrameTagger
from regard.tasks.tag.frames.training import TRAINING
from tests.small_series import series, train_arguments, write_series

STEPS = "train.max_steps=40"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A trained run and its data."""
    folder = tmp_path_factory.mktemp("frames")
    data = write_series(folder / "train.npz")
    write_series(folder / "test.npz", (150, 30), seed=7)
    assert main([*train_arguments(data, folder / "run", STEPS), "--test", str(folder / "test.npz")]) == 0
    return folder


@pytest.fixture(scope="module")
def tagger(folder):
    return regard.load(folder / "run")


def told(arguments, capsys, code=0):
    capsys.readouterr()
    assert main([str(one) for one in arguments]) == code
    found = capsys.readouterr()
    return found.err if code else found.out


def test_the_run_folder_is_complete(folder):
    names = {path.name for path in (folder / "run").iterdir() if not path.name.startswith(".")}
    assert names == {
        "recipe.toml", "labels.json", "normalization.json", "weights.safetensors", "metrics.jsonl", "card.json",
        "report.html", "held-out.jsonl", "checkpoints", "checksums.json",
    }  # fmt: skip
    run = Run.open(folder / "run")
    assert run.sizes == {"frame_width": 2, "labels": 3}
    assert run.labels == ("jump", "rest", "walk")
    assert run.normalization.mean_F == pytest.approx([1050, 950], abs=30)
    card = run.card
    assert card["series"] == {"train": 22, "valid": 2, "test": 2}
    assert card["frames"] == {"train": 1320, "valid": 120, "test": 180}
    assert sum(card["labels"].values()) == 1320
    assert {choice["name"] for choice in card["plan"]} >= {"tag.max_frames", "train.metric"} - {"tag.max_frames"}
    report = (folder / "run" / "report.html").read_text()
    assert '"timelines"' in report
    assert '"predicted":[["' in report
    kept = run.held_out_records()
    assert [len(one["frames"]) for one in kept] == [150, 30]
    assert TRAINING.from_records(kept)[1].labels == tuple(series(30, 107)[1].tolist())


def test_it_learns_the_activities(folder, tagger):
    assert isinstance(tagger, FrameTagger)
    scores = Run.open(folder / "run").card["scores"]["test"]
    assert scores["accuracy"] > 0.9
    assert scores["segment_f1"] > 0.7
    found = tagger.score(tagger.read(folder / "test.npz"))
    assert found.accuracy == pytest.approx(scores["accuracy"])
    assert (found.frames, found.series) == (180, 2)


def test_every_frame_of_a_long_series_gets_one_label(tagger):
    frames, labels = series(1000, seed=11)
    [whole], [first] = tagger.tag(frames), tagger.tag(frames[:40])
    assert len(whole.labels) == len(whole.probabilities) == 1000
    assert whole.labels[:32] == first.labels[:32]  # the last 8 frames of a window are context
    assert np.mean(np.array(whole.labels) == labels) > 0.9
    assert [one.start for one in whole.segments[1:]] == [one.end for one in whole.segments[:-1]]
    assert (whole.segments[0].start, whole.segments[-1].end) == (0, 1000)
    for one in whole.segments:
        assert set(whole.labels[one.start : one.end]) == {one.label}
        assert one.probability == pytest.approx(np.mean(whole.probabilities[one.start : one.end]))


def test_series_do_not_depend_on_their_neighbours(tagger):
    some = [series(length, seed=length)[0] for length in (5, 90, 1, 41)]
    for alone, together in zip(some, tagger.tag(some), strict=True):
        [expected] = tagger.tag(alone)
        assert together.labels == expected.labels
        assert together.probabilities == pytest.approx(expected.probabilities, abs=1e-6)


def test_influence_shows_the_number_that_decides(tagger):
    frames = np.array([[1150.0, 1000.0]] * 10)  # what only the first number tells from rest
    [tagged] = tagger.tag(frames, explain=True)
    [segment] = tagged.segments
    assert segment.label == "walk"
    assert segment.influence[0] > max(1.0, segment.influence[1])
    assert "influence" not in tagger.tag(frames)[0].as_dict()["segments"][0]


@pytest.mark.parametrize(
    ("frames", "problem"),
    [
        (np.ones((4, 3)), "has frames of 3 numbers, but the run has frames of 2"),
        ([[[1, 2], [3]]], "frames of different widths"),
        (np.array([[np.nan, 1]]), "not finite"),
        (np.array([["a", "b"]]), "holds texts"),
        (np.empty((0, 2)), "at least one frame"),
        ([np.ones(3)], "give an array"),
    ],
)
def test_wrong_frames_are_one_line(tagger, frames, problem):
    with pytest.raises(CorpusError, match=problem):
        tagger.tag(frames)


def test_a_damaged_normalization_is_one_line(folder, tmp_path):
    run = Run.open(folder / "run")
    copy = tmp_path / "run"
    copy.mkdir()
    for name in ("recipe.toml", "labels.json", "weights.safetensors", "card.json", "checksums.json"):
        (copy / name).write_bytes((run.folder / name).read_bytes())
    with pytest.raises(RunError, match=r"normalization\.json: cannot read"):
        regard.load(copy)
    (copy / "normalization.json").write_text('{"mean": [0, 0], "deviation": [1, 1]}')
    with pytest.raises(RunError, match="damaged or changed"):
        regard.load(copy)


# ---------------------------------------------------------------------------------------------------------------------
# Commands


def test_the_command_prints_frames_segments_and_json(folder, tagger, capsys):
    run, file = folder / "run", folder / "test.npz"
    rows = [line.split("\t") for line in told(["tag", run, file], capsys).splitlines()]
    assert rows[0] == ["series", "frame", "label", "probability"]
    assert len(rows) == 181
    assert rows[151][:2] == ["test-1", "0"]
    tagged = tagger.tag(file)
    assert [row[2] for row in rows[1:]] == [label for one in tagged for label in one.labels]
    rows = [line.split("\t") for line in told(["tag", run, file, "--output-format", "segments"], capsys).splitlines()]
    assert [(row[1], row[2], row[3]) for row in rows[1:]] == [
        (str(each.start), str(each.end), each.label) for one in tagged for each in one.segments
    ]
    found = [json.loads(line) for line in told(["tag", run, file, "--json", "--explain"], capsys).splitlines()]
    assert [one["name"] for one in found] == ["test-0", "test-1"]
    assert len(found[0]["segments"][0]["influence"]) == 2
    assert tuple(found[1]["labels"]) == tagged[1].labels


def test_evaluate_and_score_agree(folder, capsys):
    run, file = folder / "run", folder / "test.npz"
    scores = json.loads(told(["evaluate", run, "--source", file, "--json"], capsys))
    assert scores == json.loads(told(["tag", run, file, "--score", "--json"], capsys))
    assert scores["accuracy"] == pytest.approx(Run.open(run).card["scores"]["test"]["accuracy"])
    shown = told(["evaluate", run, "--source", file], capsys)
    assert "segment F1@50" in shown
    assert "edit score" in shown


def test_inspect_shows_a_series(folder, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert "jump" in told(["inspect", folder / "run", folder / "test.npz", "--out", out], capsys)
    assert out.read_text().startswith("<!doctype html>")
    found = json.loads(told(["inspect", folder / "run", folder / "test.npz", "--json"], capsys))
    [line] = found["timelines"]["series"]
    assert (line["frames"], line["name"]) == (150, "test-0")
    assert sum(end - start for _, start, end in line["predicted"]) == 150
    assert sum(end - start for _, start, end in line["correct"]) == 150
    assert found["attention"] is None  # a recurrent model has none


def test_wrong_use_is_one_line(folder, tmp_path, capsys):
    run, file = folder / "run", folder / "test.npz"
    np.savez(tmp_path / "wide.npz", frames=np.ones((5, 3)), labels=[1] * 5)
    np.savez(tmp_path / "other.npz", frames=np.ones((5, 2)), labels=["x"] * 5)
    np.savez(tmp_path / "one.npz", frames=np.ones((2000, 2)), labels=["x"] * 2000)
    np.savez(tmp_path / "few.npz", frames=np.ones((50, 2)), labels=["x", "y"] * 25)
    for arguments, problem in (
        (["tag", run], "give the file to label"),
        (["tag", run, tmp_path / "none.npz"], "no such file"),
        (["tag", run, tmp_path / "wide.npz"], "has frames of 3 numbers, but the run has frames of 2"),
        (["tag", run, file, "--json", "--output-format", "frames"], "choose one"),
        (["tag", run, file, "--explain"], "add --json"),
        (["tag", run, file, "--score", "--explain"], "leave out --explain"),
        (["evaluate", run, "--source", tmp_path / "other.npz"], "none of the labels in the data is known"),
        (["inspect", run, "He waits."], "not a file of frames"),
        (train_arguments(tmp_path / "one.npz", tmp_path / "no"), 'every frame is labeled "x"'),
        (train_arguments(tmp_path / "few.npz", tmp_path / "no"), "50 frames are too few to hold out blocks"),
        ([*train_arguments(folder / "train.npz", tmp_path / "no"), "--valid", tmp_path / "wide.npz"],
         "frames of 3 numbers, but .* has frames of 2"),
        ([*train_arguments(folder / "train.npz", tmp_path / "no"), "--target", "x"], "are in one file"),
        ([*train_arguments(folder / "train.npz", tmp_path / "no"), "--images", "x"], "--images x: not for taggers"),
        (["finetune", run, "--source", tmp_path / "few.npz", "--valid", file, "--out", tmp_path / "no"],
         'the label "x" is unknown'),
        (["finetune", run, "--source", tmp_path / "wide.npz", "--valid", tmp_path / "wide.npz"], "every frame"),
    ):  # fmt: skip
        error = told(arguments, capsys, code=2).strip().splitlines()
        assert re.search(problem, error[-1]), error
        assert "Traceback" not in " ".join(error)
    assert not (tmp_path / "no").exists()


def test_finetuning_keeps_labels_and_normalization(folder, tmp_path):
    data, out = write_series(tmp_path / "more.npz", seed=5), tmp_path / "tuned"
    arguments = ["finetune", str(folder / "run"), "--source", str(data), "--out", str(out), "--force"]
    assert main([*arguments, "--set", "train.max_steps=2"]) == 0
    tuned, base = Run.open(out), Run.open(folder / "run")
    assert tuned.labels == base.labels
    assert tuned.normalization.to_json() == base.normalization.to_json()
    assert tuned.card["comparison"]["before"] == pytest.approx(base.card["scores"]["test"]["accuracy"])


def test_interrupted_and_resumed_equals_never_interrupted(folder, tmp_path):
    run, data = tmp_path / "run", folder / "train.npz"
    steady = ["train.cooldown=0", "train.patience=0", "tag.max_frames=24"]  # several windows per series, that move
    assert main(train_arguments(data, run, "train.max_steps=10", *steady)) == 0
    assert main(["resume", str(run), "--set", "train.max_steps=15"]) == 0
    assert main(train_arguments(data, tmp_path / "whole", "train.max_steps=15", *steady)) == 0
    last = [sorted((one / "checkpoints").glob("*.safetensors"))[-1].read_bytes() for one in (run, tmp_path / "whole")]
    assert last[0] == last[1]


def test_the_encoder_shows_its_attention(folder, tmp_path, capsys):
    out = tmp_path / "run"
    small = ["model.ffn_width=16", "model.heads=2", "model.encoder_layers=1", "model.width=16", "train.max_steps=2"]
    arguments = train_arguments(folder / "train.npz", out, *small)
    place = arguments.index("model.layers=1")
    assert main([*arguments[: place - 1], *arguments[place + 1 :], "--arch", "transformer-crf"]) == 0
    np.savez(tmp_path / "short.npz", frames=series(20)[0])
    found = json.loads(told(["inspect", out, tmp_path / "short.npz", "--json"], capsys))
    assert [one["name"] for one in found["attention"]["maps"]] == ["encoder.0.self"]
    assert found["timelines"]["series"][0]["correct"] == []


def test_folders_of_pictures(tmp_path, capsys):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    for video in range(2):
        (tmp_path / "videos" / str(video)).mkdir(parents=True)
        for place in range(30):
            image.new("L", (8, 8), 250 * (place // 10 % 2)).save(tmp_path / "videos" / str(video) / f"{place:03}.png")
        (tmp_path / "videos" / str(video) / "labels.txt").write_text(("off\n" * 10 + "on\n" * 10) + "off\n" * 10)
    sized = ["pictures.size=[4,4]", "pictures.patch_size=4", "pictures.channels=1", "tag.gap=1", "train.max_steps=20"]
    assert main(train_arguments(tmp_path / "videos", tmp_path / "run", *sized)) == 0
    (tmp_path / "videos").rename(tmp_path / "elsewhere")  # the run does not need its data
    assert Run.open(tmp_path / "run").sizes["frame_width"] == 16
    rows = told(["tag", tmp_path / "run", tmp_path / "elsewhere" / "1"], capsys).splitlines()
    assert [row.split("\t")[2] for row in rows[6:27:10]] == ["off", "on", "off"]


# ---------------------------------------------------------------------------------------------------------------------
# Held-out parts and windows


def test_whole_series_are_held_out_if_there_are_many():
    many = [Series(*map(np.asarray, series(30, seed)), str(seed)) for seed in range(39)]
    many.append(many[0]._replace(name="copy"))  # equal series stay together
    data = DataSettings(train=(Corpus("a.npz"),), test_size=0)
    for seed in range(5):
        parts = hold_out_frames(data, [many], lambda corpus: [], 10, seed)
        names = {part: {one.name for one in own} for part, own in parts.held_out.items()}
        assert len(names["valid"]) in (3, 4)
        assert names["test"] == set()
        assert ("0" in names["valid"]) == ("copy" in names["valid"])
        assert {one.name for one in parts.train()} | names["valid"] == {one.name for one in many}


@pytest.mark.parametrize("seed", range(5))
def test_blocks_are_held_out_with_a_gap_if_there_are_few(seed):
    length, gap = 2000, 10
    labels = tuple(np.repeat(["a", "b", "c", "a"], [900, 100, 900, 100]).tolist())
    one = Series(np.arange(length, dtype=np.float32)[:, None], labels, "one")  # every frame is its own number
    parts = hold_out_frames(DataSettings(train=(Corpus("a.npz"),)), [[one]], lambda corpus: [], gap, seed)
    every = {"train": list(parts.train()), **parts.held_out}
    places = {part: np.concatenate([piece.frames[:, 0] for piece in own]) for part, own in every.items()}
    for part, own in places.items():
        assert len(set(own)) == len(own)
        assert all(
            labels[int(place)] == label
            for piece in every[part]
            for place, label in zip(piece.frames[:, 0], piece.labels, strict=True)
        )
        for other in places.keys() - {part}:
            assert np.abs(own[:, None] - places[other]).min() > gap  # at least `gap` frames between them
    assert len(places["train"]) == 1600
    assert {label for piece in every["train"] for label in piece.labels} == {"a", "b", "c"}
    again = hold_out_frames(DataSettings(train=(Corpus("a.npz"),)), [[one]], lambda corpus: [], gap, seed)
    assert [piece.name for piece in again.train()] == [piece.name for piece in every["train"]]


def test_windows_cover_every_frame_and_move_in_every_epoch():
    windows = training_windows([100, 30, 41, 40], 40)
    assert [one[:3] for one in windows] == [
        (0, 0, 40), (0, 20, 40), (0, 40, 40), (0, 60, 40), (1, 0, 30), (2, 0, 40), (2, 1, 40), (3, 0, 40)
    ]  # fmt: skip
    first, second = shifts(windows, 40, 1, 0), shifts(windows, 40, 1, 1)
    assert np.array_equal(first, shifts(windows, 40, 1, 0))
    assert not np.array_equal(first, second)
    for starts in (first, second):
        assert all(0 <= start <= one.most for start, one in zip(starts, windows, strict=True))
        assert all(abs(start - one.start) <= 10 for start, one in zip(starts, windows, strict=True))


def test_the_plan_follows_the_data(tmp_path):
    data = write_series(tmp_path / "long.npz", (3000,))
    recipe = make_recipe({"data": {"task": "tag", "train": [{"source": str(data)}]}})
    examples = TrainingFrames(recipe)
    assert "numbers per frame, 3 labels" in examples.describe()
    plan = {choice.name: choice.value for choice in TRAINING.plan(examples, None, {}, "")}
    assert plan["tag.max_frames"] == 64
    assert plan["train.metric"] == "accuracy"
    given = {"tag": {"max_frames": 99}, "model": {"arch": "transformer-crf"}}
    plan = {choice.name: choice.value for choice in TRAINING.plan(examples, None, given, "")}
    assert "tag.max_frames" not in plan
    assert plan["train.optimizer"] == "muon"
    rare = examples.facts.__class__(1, 1000, 1000, 2, 2, 100.0, 0.03)
    assert {choice.name: choice.value for choice in TRAINING.plan(_with(examples, rare), None, {}, "")}[
        "train.metric"
    ] == "f1"


def _with(examples, facts):
    examples.__dict__["facts"] = facts
    return examples


# ---------------------------------------------------------------------------------------------------------------------
# The HTTP API


def test_the_api_takes_one_series_or_several(tagger):
    frames = series(20)[0].tolist()
    for given, count in ((frames, 1), ([frames, frames[:5]], 2)):
        request = api.Request(frames=given)
        assert request.limits == ("series", "numbers")
        assert [len(one) for one in request.texts()[1]] == [40, 10][:count]
        parts = request.split()
        assert {api.batch_key(part) for part in parts} == {(False, 2)}
        found = api.answer(tagger, parts)
        assert tuple(found[0]["labels"]) == tagger.tag(np.array(frames))[0].labels
        assert json.loads(json.dumps(found))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "either q .* or frames"),
        ({"q": "a", "frames": [[1.0]]}, "either q .* or frames"),
        ({"frames": []}, "at least one"),
        ({"frames": [[1.0, 2.0], [1.0]]}, "equal numbers"),
        ({"frames": [[1e39]]}, "too large"),
    ],
)
def test_wrong_requests(given, problem):
    with pytest.raises(FieldError, match=problem):
        api.Request(**given).texts()


def test_requests_for_the_other_kind_of_run(tagger):
    with pytest.raises(FieldError, match="this run reads frames of 2 numbers"):
        api.answer(tagger, [api.Request(q="a")])
    with pytest.raises(FieldError, match="this run reads frames of 2 numbers, not of 1"):
        api.answer(tagger, [api.Request(frames=[[1.0]])])
