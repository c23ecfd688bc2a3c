"""An export is there whole, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from regard.errors import RunError, UnwritableError
from regard.export import export_folder, fingerprint, read_mark
from regard.run import Run
from tests.export.runs import random_recipe, random_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return random_run(tmp_path_factory.mktemp("folder") / "run", random_recipe())


def export(run: Run, folder: Path, content: str) -> None:
    with export_folder(run, folder, {"format": "test"}) as draft:
        assert not (folder / "file").exists() or (folder / "file").read_text() != content
        (draft / "file").write_text(content)


def test_an_earlier_export_is_replaced(run: Run, tmp_path: Path) -> None:
    export(run, tmp_path / "a" / "b", "one")
    export(run, tmp_path / "a" / "b", "two")
    assert (tmp_path / "a" / "b" / "file").read_text() == "two"
    assert read_mark(tmp_path / "a" / "b")["fingerprint"] == fingerprint(run)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


def test_anything_else_is_refused_and_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("mine")
    (tmp_path / "plain").write_text("mine")
    for name in ("mine", "plain"):
        with pytest.raises(RunError, match="exists and is not an earlier export"):
            export(run, tmp_path / name, "one")
    assert (tmp_path / "mine" / "notes").read_text() == (tmp_path / "plain").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    export(run, tmp_path / "empty", "one")


def test_an_error_leaves_nothing_new_and_the_old(run: Run, tmp_path: Path) -> None:
    export(run, tmp_path / "a", "one")
    for name in ("a", "b"):
        with pytest.raises(KeyError):
            break_off(run, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a" / "file").read_text() == "one"


def break_off(run: Run, folder: Path) -> None:
    with export_folder(run, folder, {}) as draft:
        (draft / "file").write_text("half")
        raise KeyError


def test_a_place_that_cannot_be_written_to(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnwritableError, match="cannot be written"):
        export(run, tmp_path / "file" / "a", "one")


def test_of_exports_at_once_the_last_stays_and_none_fails(run: Run, tmp_path: Path) -> None:
    with export_folder(run, tmp_path / "a", {}) as first:
        (first / "file").write_text("first")
        with export_folder(run, tmp_path / "a", {}) as second:  # in the same process, and so of the same id
            (second / "file").write_text("second")
    assert (tmp_path / "a" / "file").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_one_that_takes_the_name_in_between_is_no_error(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, came = os.rename, []

    def crossed(source: Path, target: Path) -> None:
        if target == tmp_path / "a" and not came:
            came.append(True)
            export(run, target, "other")
        rename(source, target)

    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, crossed)
    export(run, tmp_path / "a", "mine")
    assert (tmp_path / "a" / "file").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_link_stays(run: Run, tmp_path: Path) -> None:
    export(run, tmp_path / "elsewhere", "one")
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere")
    export(run, tmp_path / "a", "two")
    assert (tmp_path / "a").is_symlink()
    assert (tmp_path / "elsewhere" / "file").read_text() == "two"


def test_a_damaged_mark_says_nothing(tmp_path: Path) -> None:
    assert read_mark(tmp_path) == {}
    (tmp_path / "export.json").write_text("[1]")
    assert read_mark(tmp_path) == {}
    (tmp_path / "export.json").write_text("{")
    assert read_mark(tmp_path) == {}
