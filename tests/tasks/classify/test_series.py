"""Classification of series of frames, from file to report."""

import json

import numpy as np
import pytest

import regard
from regard.cli import main
from regard.errors import CorpusError
from regard.run import Run
from regard.tasks.api import FieldError
from regard.tasks.classify import api
from regard.tasks.classify.frames.data import SEGMENT, make_series_batch, segment_bounds
from tests.small_series import CENTERS, OFFSET, SCALE

SMALL = [
    "model.embedding_width=8",
    "model.width=8",
    "model.dropout=0.1",
    "train.batch_tokens=512",
    "train.learning_rate=0.02",
    "train.warmup_steps=3",
    "train.ema_decay=0.9",
    "train.validate_every=20",
    "train.checkpoint_every=5",
]


def write_labeled(path, count=120, seed=1):
    """Series of 5 to 90 frames, each of one activity, one after another in a file."""
    chance = np.random.default_rng(seed)
    lengths = chance.integers(5, 91, count)
    labels = [str(chance.choice(list(CENTERS))) for _ in lengths]
    centers = np.repeat([CENTERS[label] for label in labels], lengths, axis=0)
    frames = OFFSET + SCALE * (centers + 2 * chance.normal(size=centers.shape))
    np.savez(path, frames=frames, labels=labels, lengths=lengths)
    return path


def train_arguments(data, out, *settings):
    arguments = ["train", "--task", "classify", str(data), "--out", str(out)]
    for setting in (*SMALL, *settings):
        arguments += ["--set", setting]
    return arguments


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("series")
    data = write_labeled(folder / "train.npz")
    write_labeled(folder / "test.npz", 30, seed=2)
    arguments = train_arguments(data, folder / "run", "train.max_steps=60")
    assert main([*arguments, "--test", str(folder / "test.npz")]) == 0
    return folder


def told(arguments, capsys, code=0):
    capsys.readouterr()
    assert main([str(one) for one in arguments]) == code
    found = capsys.readouterr()
    return found.err if code else found.out


def test_a_run_learns_the_labels_of_series(folder):
    run = Run.open(folder / "run")
    assert run.sizes == {"frame_width": 2, "labels": 3}
    assert not list((folder / "run").glob("tokenizer*"))
    assert run.card["series"]["test"] == 30
    assert run.card["scores"]["test"]["accuracy"] > 0.9
    assert '"timelines"' in (folder / "run" / "report.html").read_text()
    assert {"series", "labels", "name"} == run.held_out_records()[0].keys()


def test_the_commands(folder, tmp_path, capsys):
    run, file = folder / "run", folder / "test.npz"
    rows = [line.split("\t") for line in told(["classify", run, file], capsys).splitlines()]
    assert len(rows) == 30
    with np.load(file) as arrays:
        right = np.mean(arrays["labels"] == [row[1] for row in rows])
        lengths = arrays["lengths"].tolist()
    found = [json.loads(line) for line in told(["classify", run, file, "--json", "--explain"], capsys).splitlines()]
    assert [len(one["attention"]) for one in found] == lengths
    assert sum(found[0]["attention"]) == pytest.approx(1, abs=1e-4)
    scores = json.loads(told(["evaluate", run, "--source", file, "--json"], capsys))
    assert scores["accuracy"] == pytest.approx(right)
    assert scores["accuracy"] == pytest.approx(Run.open(run).card["scores"]["test"]["accuracy"])
    out = tmp_path / "page.html"
    told(["inspect", run, file, "--out", out], capsys)
    assert '"attention"' in out.read_text()


def test_wrong_input_is_one_line(folder, tmp_path, capsys):
    np.savez(tmp_path / "wide.npz", frames=np.ones((5, 3)))
    np.savez(tmp_path / "each.npz", frames=np.ones((5, 2)), labels=[1] * 5)
    for arguments, problem in (
        (["classify", folder / "run", tmp_path / "wide.npz"], "has frames of 3 numbers, but the run has frames of 2"),
        (["classify", folder / "run", folder / "test.npz", "--explain"], "add --json"),
        (["evaluate", folder / "run", "--source", tmp_path / "each.npz"], "one label for the whole series"),
        (train_arguments(tmp_path / "wide.npz", tmp_path / "no"), "has no labels"),
    ):
        error = told(arguments, capsys, code=2).strip().splitlines()
        assert problem in error[-1]
        assert "Traceback" not in " ".join(error)
    with pytest.raises(CorpusError, match="frames of different widths"):
        regard.load(folder / "run").classify([[[1, 2], [3]]])


def test_interrupted_and_resumed_equals_never_interrupted(folder, tmp_path):
    run, data = tmp_path / "run", folder / "train.npz"
    steady = ["train.cooldown=0", "train.patience=0"]
    assert main(train_arguments(data, run, "train.max_steps=10", *steady)) == 0
    assert main(["resume", str(run), "--set", "train.max_steps=15"]) == 0
    assert main(train_arguments(data, tmp_path / "whole", "train.max_steps=15", *steady)) == 0
    last = [sorted((one / "checkpoints").glob("*.safetensors"))[-1].read_bytes() for one in (run, tmp_path / "whole")]
    assert last[0] == last[1]


def test_finetuning_and_folders(folder, tmp_path):
    (tmp_path / "more").mkdir()
    write_labeled(tmp_path / "more" / "a.npz", 40, seed=3)
    write_labeled(tmp_path / "more" / "b.npz", 40, seed=4)
    arguments = ["finetune", str(folder / "run"), "--source", str(tmp_path / "more"), "--out", str(tmp_path / "tuned")]
    assert main([*arguments, "--force", "--set", "train.max_steps=2"]) == 0
    tuned, base = Run.open(tmp_path / "tuned"), Run.open(folder / "run")
    assert tuned.normalization.to_json() == base.normalization.to_json()
    assert tuned.card["comparison"]["before"] == pytest.approx(base.card["scores"]["test"]["accuracy"])


def test_long_series_become_segments(folder):
    assert segment_bounds(SEGMENT).tolist() == [0, SEGMENT]
    assert segment_bounds(2 * SEGMENT + 1).tolist() == [0, 43, 86, 129]
    normalization = Run.open(folder / "run").normalization
    frames = [np.arange(2.0 * length, dtype=np.float32).reshape(length, 2) for length in (129, 5)]
    batch = make_series_batch(frames, normalization, None)
    assert batch.ids_BUS.shape == (2, 3, 43, 2)
    assert batch.mask_BUS.sum((1, 2)).tolist() == [129, 5]
    assert np.allclose(batch.ids_BUS[0][batch.mask_BUS[0]].numpy(), normalization.apply(frames[0]))


def test_the_api(folder):
    classifier = regard.load(folder / "run")
    frames = [[OFFSET + SCALE * 3.0, OFFSET]] * 10
    request = api.Request(frames=[frames, frames[:4]], explain=True)
    assert request.limits == ("series", "numbers")
    assert [len(one) for one in request.texts()[1]] == [20, 8]
    parts = request.split()
    assert len({api.batch_key(part) for part in parts}) == 1
    found = json.loads(json.dumps(api.answer(classifier, parts)))
    assert [one["label"] for one in found] == ["walk", "walk"]
    assert len(found[1]["attention"]) == 4
    assert api.facts(Run.open(folder / "run")) == {"frame_width": 2}
    with pytest.raises(FieldError, match="send them in the field frames"):
        api.answer(classifier, [api.Request(q="a film")])
    with pytest.raises(FieldError, match="only one of them"):
        api.Request(q="a film", frames=frames)
