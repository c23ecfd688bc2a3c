"""States: written whole, verified, the last two kept."""

import errno
import json
import os

import pytest
import torch

from regard.errors import RunError
from regard.files import write_atomically
from regard.training.checkpoint import TrainingProgress, load_checkpoint, remove_checkpoints, save_checkpoint


def tensors(value: float) -> dict[str, torch.Tensor]:
    return {"weights.a": torch.full((3,), value), "optimizer.step.a": torch.tensor(value)}


def test_round_trip_and_only_two_are_kept(tmp_path):
    folder = tmp_path / "checkpoints"
    for step in (1, 2, 3):
        save_checkpoint(folder, tensors(step), TrainingProgress(step=step, best_score=step / 2))
    assert sorted(path.name for path in folder.iterdir()) == [
        f"0000000{step}.{kind}" for step in (2, 3) for kind in ("json", "safetensors")
    ]
    found, progress, notes = load_checkpoint(folder)
    assert progress == TrainingProgress(step=3, best_score=1.5)
    assert notes == []
    assert torch.equal(found["weights.a"], torch.full((3,), 3.0))
    assert found["optimizer.step.a"].shape == ()


@pytest.mark.parametrize("damage", ["truncate", "flip", "no tensors", "bad json"])
def test_a_damaged_newest_state_falls_back_and_says_so(tmp_path, damage):
    save_checkpoint(tmp_path, tensors(1.0), TrainingProgress(step=1))
    save_checkpoint(tmp_path, tensors(2.0), TrainingProgress(step=2))
    newest = tmp_path / "00000002.safetensors"
    content = newest.read_bytes()
    if damage == "truncate":
        newest.write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        newest.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "no tensors":
        newest.unlink()
    else:
        newest.with_suffix(".json").write_text('{"progress": {')
    found, progress, notes = load_checkpoint(tmp_path)
    assert progress.step == 1
    assert found["weights.a"][0] == 1.0
    assert len(notes) == 1
    assert notes[0].startswith("checkpoint 00000002 is damaged")


def test_no_state_and_no_sound_state(tmp_path):
    assert load_checkpoint(tmp_path / "checkpoints") is None
    save_checkpoint(tmp_path, tensors(1.0), TrainingProgress(step=1))
    (tmp_path / "00000001.safetensors").write_bytes(b"")
    with pytest.raises(RunError, match="no valid checkpoint"):
        load_checkpoint(tmp_path)


def test_a_full_disk_leaves_the_last_state_as_it_was(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, tensors(1.0), TrainingProgress(step=1))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="No space left on device") as told:
        save_checkpoint(tmp_path, tensors(2.0), TrainingProgress(step=2))
    assert "\n" not in str(told.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    monkeypatch.undo()
    assert load_checkpoint(tmp_path)[1].step == 1


def test_a_vanished_folder_is_told(tmp_path):
    with pytest.raises(RunError, match="check that the run folder still exists"):
        save_checkpoint(tmp_path / "run" / "checkpoints", tensors(1.0), TrainingProgress())


def test_a_folder_that_is_renamed_while_a_state_is_written_is_told(tmp_path, monkeypatch):
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)

    def write_and_move(path, content):
        write_atomically(path, content)
        if path.suffix == ".json":
            (tmp_path / "run").rename(tmp_path / "elsewhere")

    monkeypatch.setattr("regard.training.checkpoint.write_atomically", write_and_move)
    with pytest.raises(RunError, match="the run folder was moved or removed"):
        save_checkpoint(folder, tensors(1.0), TrainingProgress(step=1))
    assert load_checkpoint(tmp_path / "elsewhere" / "checkpoints")[1].step == 1


def test_an_earlier_state_can_be_asked_for(tmp_path):
    for step in (1, 2):
        save_checkpoint(tmp_path, tensors(step), TrainingProgress(step=step))
    assert load_checkpoint(tmp_path, before=2)[1].step == 1
    assert load_checkpoint(tmp_path, before=1) is None
    (tmp_path / "00000001.safetensors").write_bytes(b"")
    assert load_checkpoint(tmp_path, before=2) is None
    remove_checkpoints(tmp_path, 2)
    assert [path.name for path in tmp_path.glob("*.json")] == ["00000001.json"]


def test_a_state_from_before_epochs_were_stored_still_loads(tmp_path):
    save_checkpoint(tmp_path, tensors(1.0), TrainingProgress(step=1, position=3, epoch=2, epoch_start=2))
    path = tmp_path / "00000001.json"
    record = json.loads(path.read_text())
    del record["progress"]["epoch"], record["progress"]["epoch_start"]
    path.write_text(json.dumps(record))
    assert load_checkpoint(tmp_path)[1] == TrainingProgress(step=1, position=3)
