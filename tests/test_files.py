"""Lines of files and of standard input; files and folders that are written as a whole."""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
from pathlib import Path

import pytest

from regard import files
from regard.errors import CorpusError, RunError, UnwritableError
from regard.export import export_folder
from regard.files import (
    atomic_files,
    atomic_folder,
    concerns,
    draft_of,
    is_typed,
    read_input_lines,
    read_lines,
    remove_folder,
    write_atomically,
)
from regard.run import Run
from tests.export.runs import random_recipe, random_run


def pipe(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_a_byte_order_mark_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, "\ufeffone\r\n\ufefftwo\nlast".encode())
    assert list(read_input_lines()) == ["one", "\ufefftwo", "last"]


def test_what_is_not_utf8_is_told_or_forgiven(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, b"one\ncaf\xe9\n")
    with pytest.raises(CorpusError, match=r"standard input:2: not UTF-8 \(byte 4 of the line is 0xe9\)"):
        list(read_input_lines())
    pipe(monkeypatch, b"one\ncaf\xe9\n")
    assert list(read_input_lines(forgiving=True)) == ["one", "caf\ufffd"]


def test_a_closed_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert not is_typed()
    with pytest.raises(CorpusError, match="standard input: is closed; name a file"):
        next(read_input_lines())


def test_a_read_error_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hung(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: object) -> int:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Hung())))
    with pytest.raises(CorpusError, match=r"standard input: cannot be read \(Input/output error\)"):
        next(read_input_lines())


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 16])
def test_lines_do_not_depend_on_how_much_is_read_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(files, "BLOCK", block)
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffß\r\n\n\u2028x\ry\r\r\n\ufeffé\nlast\r".encode())
    assert list(read_lines(path)) == ["ß", "", "\u2028x\ry\r", "\ufeffé", "last\r"]
    path.write_bytes(b"one\ntwo\ncaf\xe9\nfour\n")
    lines = read_lines(path)
    assert [next(lines), next(lines)] == ["one", "two"]
    with pytest.raises(CorpusError, match=r"a.txt:3: not UTF-8 \(byte 4 of the line is 0xe9\)"):
        next(lines)


def test_a_line_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A .gz of one endless line, or /dev/zero, must not fill the memory."""
    monkeypatch.setattr(files, "LONGEST_LINE", 1 << 20)
    path = tmp_path / "a.txt.gz"
    with gzip.open(path, "wb") as file:
        file.write(b"one\n" + bytes(3 << 20))
    lines = read_lines(path)
    assert next(lines) == "one"
    with pytest.raises(CorpusError, match=r"a.txt.gz:2: a line of more than 1 MB"):
        next(lines)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16"])
@pytest.mark.parametrize("text", ["The cat.\nThe dog.\n", "Кот и пёс.\nДом и сад.\n", "one line"])
def test_utf16_is_refused_with_and_without_a_mark(tmp_path: Path, encoding: str, text: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode(encoding))
    with pytest.raises(CorpusError, match=r"a.txt:1: UTF-16, not UTF-8; convert it, e.g. iconv -f utf-16"):
        list(read_lines(path))


def test_a_stray_zero_is_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\x00b\n" + b"The cat sees the house.\n" * 3 + b"\x00\x00\x00\n")
    assert next(read_lines(path)) == "a\x00b"


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
    from regard.tasks.translate.engine import open_engine

    run = random_run(tmp_path / "run", random_recipe())
    left = [draft_of(run.folder / "ctranslate2-int8"), run.folder / ".ctranslate2-int8.17-0a1b2c3d.part"]
    kept = run.folder / ".my-folder"
    for path in (*left, kept):
        path.mkdir()
    open_engine(run, "int8")
    assert not any(path.exists() for path in left)
    assert kept.exists()


def test_a_folder_replaces_another_as_a_whole(tmp_path):
    for content in ("one", "two"):
        with atomic_folder(tmp_path / "a") as draft:
            assert draft.name == "a"
            (draft / "inner").mkdir()
            (draft / "inner" / "file").write_text(content)
            assert draft != tmp_path / "a"
    with pytest.raises(FileNotFoundError), atomic_folder(tmp_path / "a") as draft:
        draft.joinpath("file").write_text(tmp_path.joinpath("missing").read_text())
    assert [path.relative_to(tmp_path / "a").as_posix() for path in (tmp_path / "a").rglob("*")] == [
        "inner",
        "inner/file",
    ]
    assert (tmp_path / "a" / "inner" / "file").read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_folder_is_removed_without_a_trace(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_text("text")
    for _ in range(2):  # the second time there is nothing to remove
        remove_folder(tmp_path / "a")
        assert list(tmp_path.iterdir()) == []
