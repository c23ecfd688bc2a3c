"""Atomic writes: modes, leftovers, and whose error it was."""

import os
import stat

import pytest

from regard.errors import RunError, UnwritableError
from regard.export.folder import export_folder
from regard.files import atomic_files, atomic_folder, concerns, draft_of, write_atomically
from regard.run import Run
from tests.export.runs import random_recipe, random_run


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
def test_the_umask_decides_who_may_read(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "file", b"text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


def test_errors_of_other_files_are_not_errors_of_the_draft(tmp_path):
    draft = tmp_path / "draft"
    assert concerns(FileNotFoundError(2, "none", str(draft / "a")), draft)
    assert concerns(OSError(28, "full"), draft)
    assert not concerns(FileNotFoundError(2, "none", "/elsewhere"), draft)
    assert not concerns(ConnectionResetError(104, "reset"), draft)


def test_an_error_of_the_block_keeps_its_own_name(tmp_path):
    run = random_run(tmp_path / "run", random_recipe())
    blocks = [
        lambda: export_folder(run, tmp_path / "out", {}),
        lambda: atomic_folder(tmp_path / "out"),
        lambda: atomic_files([tmp_path / "out"]),
    ]
    for make in blocks:
        with pytest.raises(FileNotFoundError), make():
            (tmp_path / "missing").read_bytes()
        with pytest.raises(UnwritableError, match="cannot be written"), make():
            raise OSError(28, "No space left on device")
        assert not list(tmp_path.glob("*out*"))


def test_a_link_in_the_run_is_never_followed_for_a_default_export(tmp_path):
    run, victim = random_run(tmp_path / "run", random_recipe()), tmp_path / "victim"
    victim.mkdir()
    (victim / "export.json").write_text("{}")
    (victim / "precious").write_text("text")
    (run.folder / "ctranslate2-int8").symlink_to(victim)
    with pytest.raises(RunError, match="is a link"), export_folder(run, run.folder / "ctranslate2-int8", {}):
        pass
    assert (victim / "precious").read_text() == "text"
    (tmp_path / "mine").symlink_to(victim)  # but one that the user names is
    with export_folder(run, tmp_path / "mine", {}):
        pass
    assert not (victim / "precious").exists()


def test_drafts_of_killed_processes_are_removed_under_the_lock(tmp_path):
    run = random_run(tmp_path / "run", random_recipe())
    best = run.folder / "checkpoints" / "best"
    best.mkdir(parents=True)
    (best / "00000001.json").write_text("{}")
    left = [draft_of(folder / name) for folder, name in (
        (run.folder, "weights.safetensors"), (best.parent, "00000006.safetensors"), (best, "00000006.json"),
    )]  # fmt: skip
    fresh, old = draft_of(run.folder / "card.json"), draft_of(run.folder / "report.html")
    kept = run.folder / ".mine.part"
    for path in (*left, fresh, old, kept):
        path.write_text("half")
    os.utime(old, (0, 0))
    with run.locked():
        assert not any(path.exists() for path in (*left, old))
        assert fresh.exists()  # another command may be writing it
        assert kept.exists()
        assert (best / "00000001.json").exists()
    Run.open(run.folder).load_network()


def test_unfinished_conversions_are_removed_by_the_next(tmp_path):
    from regard.tasks.translate.engine import convert_if_new

    run = random_run(tmp_path / "run", random_recipe())
    left = [draft_of(run.folder / "ctranslate2-int8"), run.folder / ".ctranslate2-int8.17-0a1b2c3d.part"]
    kept = run.folder / ".my-folder"
    for path in (*left, kept):
        path.mkdir()
    assert convert_if_new(run, "int8")
    assert not any(path.exists() for path in left)
    assert kept.exists()
