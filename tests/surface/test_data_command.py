"""`regard data`, through the same door as the user: answers, files, looks and complaints."""

from __future__ import annotations

import errno
import gzip
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from regard.cli import main
from regard.data.clean import RULES

ROWS = [
    ("The house is old.", "La casa è vecchia."),
    ("The house is old.", "La casa è antica."),
    ("", "vuoto"),
    ("Good <b>day</b>", "Buongiorno"),
    ("Good night.", "Buonanotte."),
    ("Good night.", "Buonanotte."),
]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in ROWS), encoding="utf-8")
    return path


@pytest.fixture
def singles(tmp_path: Path) -> Path:
    path = tmp_path / "singles.tsv"
    path.write_text("".join(f"source {number}\ttarget {number}\n" for number in range(100)), encoding="utf-8")
    return path


@pytest.fixture
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make rich take the captured output for a terminal of 80 columns without colours."""
    for name, value in {"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}.items():
        monkeypatch.setenv(name, value)


def data(*arguments: str | Path) -> int:
    return main(["data", *map(str, arguments)])


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert data(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err.removeprefix("regard: ").removesuffix("\n")


def answer(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, object]:
    assert data(*arguments, "--json") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    found = json.loads(captured.out)
    assert isinstance(found, dict)
    return found


class TestClean:
    def test_writes_one_file(self, capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path) -> None:
        for name in ("clean.tsv", "clean.tsv.gz", "again.tsv.gz", "clean.tsv.zst"):
            if name.endswith("zst"):
                pytest.importorskip("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
            assert answer(capsys, "clean", "--source", corpus, "--out", tmp_path / name)["kept"] == 3
            assert answer(capsys, "clean", "--source", tmp_path / name)["read"] == 3
        expected = "".join(f"{source}\t{target}\n" for source, target in (ROWS[0], ROWS[1], ROWS[4]))
        assert (tmp_path / "clean.tsv").read_text(encoding="utf-8") == expected
        assert gzip.decompress((tmp_path / "clean.tsv.gz").read_bytes()).decode() == expected
        assert (tmp_path / "clean.tsv.gz").read_bytes() == (tmp_path / "again.tsv.gz").read_bytes()
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]

    def test_writes_two_files(self, capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path) -> None:
        sides = [tmp_path / "b.en", tmp_path / "b.it.gz"]
        found = answer(capsys, "clean", "--source", corpus, "--out-source", sides[0], "--out-target", sides[1])
        assert found["outputs"] == list(map(str, sides))
        assert sides[0].read_text() == "The house is old.\nThe house is old.\nGood night.\n"
        assert answer(capsys, "clean", "--source", sides[0], "--target", sides[1])["kept"] == 3

    def test_json_counts_and_shows(self, capsys: pytest.CaptureFixture[str], corpus: Path) -> None:
        found = answer(capsys, "clean", "--source", corpus, "--report", "1", "--from", "en", "--to", "it")
        assert (found["read"], found["kept"], found["outputs"]) == (6, 3, [])
        removed = found["removed"]
        assert isinstance(removed, dict)
        assert list(removed) == list(RULES)
        assert {rule: count for rule, count in removed.items() if count} == {"empty": 1, "html": 1, "duplicate": 1}
        assert found["examples"] == {
            "empty": [{"number": 3, "source": "", "target": "vuoto"}],
            "html": [{"number": 4, "source": "Good <b>day</b>", "target": "Buongiorno"}],
            "duplicate": [{"number": 6, "source": "Good night.", "target": "Buonanotte."}],
        }

    def test_options_reach_the_rules(self, capsys: pytest.CaptureFixture[str], corpus: Path) -> None:
        kept = ("--no-drop-html", "--no-drop-duplicates", "--max-length-ratio", "0", "--min-script", "0")
        assert answer(capsys, "clean", "--source", corpus, *kept)["kept"] == 5
        assert answer(capsys, "clean", "--source", corpus, "--max-words", "2")["kept"] == 1
        assert answer(capsys, "clean", "--source", corpus, "--max-characters", "11")["kept"] == 1
        assert answer(capsys, "clean", "--source", corpus, "--from", "ru")["kept"] == 0

    def test_plain_output_has_tabs(self, capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path) -> None:
        assert data("clean", "--source", corpus, "--report", "--out", tmp_path / "b.tsv") == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[:4] == ["read\t6", "kept\t3", "empty\t1", "control\t0"]
        assert "html\t4\tGood <b>day</b>\tBuongiorno" in lines
        assert lines[-2:] == [f"wrote\t{tmp_path / 'b.tsv'}", "flattened\t0"]

    @pytest.mark.usefixtures("_terminal")
    def test_terminal_output(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        path = tmp_path / "a.tsv"
        path.write_text(f"a\x1b[31m red\tb\nGood {'long ' * 40}\tx\nhouse\tcasa\n")
        assert data("clean", "--source", path, "--report") == 0
        shown = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
        assert "\x1b" not in shown  # what a corpus holds must not steer the terminal
        assert "  a.tsv  3 pairs\n\n  1 kept, 2 removed (66.7 %)\n" in shown
        assert r"         1  a\x1b[31m red" in shown
        assert max(map(len, shown.splitlines())) <= 80

    def test_line_ends_inside_sentences_become_spaces(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        path = tmp_path / "a.jsonl"
        path.write_text(json.dumps({"source": "two\r\nlines", "target": "due\trighe"}) + "\n")
        found = answer(capsys, "clean", "--source", path, "--out", tmp_path / "b.tsv")
        assert found["flattened"] == 2
        assert (tmp_path / "b.tsv").read_bytes() == b"two lines\tdue righe\n"
        sides = ("--out-source", tmp_path / "b.en", "--out-target", tmp_path / "b.it")
        assert answer(capsys, "clean", "--source", path, *sides)["flattened"] == 1
        assert (tmp_path / "b.it").read_bytes() == b"due\trighe\n"  # a tab breaks no line of text

    def test_what_exists_is_kept(self, capsys: pytest.CaptureFixture[str], corpus: Path) -> None:
        before = corpus.read_bytes()
        told = complaint(capsys, "clean", "--source", corpus, "--out", corpus)
        assert told == f"{corpus}: exists already; add --force to write over it"
        assert corpus.read_bytes() == before
        assert (
            data("clean", "--source", corpus, "--out", corpus, "--force") == 0
        )  # read to the end before it is replaced
        assert corpus.read_text(encoding="utf-8").count("\n") == 3

    def test_a_failure_leaves_nothing_behind(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broken, out = tmp_path / "a.tsv", tmp_path / "out" / "b.tsv"
        out.parent.mkdir()
        out.write_text("old")
        broken.write_text("a\tb\n" * 2000 + "no tab\n")
        told = complaint(capsys, "clean", "--source", broken, "--out", out, "--force")
        assert told == f"{broken}:2001: no tab in this row; a row is source, tab, target"
        broken.write_text("a\tb\n")

        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full)
        told = complaint(capsys, "clean", "--source", broken, "--out", out, "--force")
        assert told == f"{out}: cannot be written (No space left on device)"
        assert [path.name for path in out.parent.iterdir()] == ["b.tsv"]
        assert out.read_text() == "old"

    def test_complaints(self, capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path) -> None:
        def told(*arguments: str | Path) -> str:
            return complaint(capsys, "clean", "--source", corpus, *arguments)

        one, two = tmp_path / "x.en", tmp_path / "x.it"
        missing = "is missing: the source and the target are written to two files; give both"
        assert told("--out-source", one) == f"--out-target {missing}"
        assert told("--out-target", two) == f"--out-source {missing}"
        assert told("--out", one) == (
            f"--out {one}: one file with both sides is TSV; name it .tsv, .tsv.gz or .tsv.zst"
        )
        assert told("--out", tmp_path / "x.tsv", "--out-source", one) == (
            "give either --out (one file with both sides), or --out-source and --out-target"
        )
        assert told("--out-source", one, "--out-target", one) == (
            f"--out-source and --out-target are the same file, {one}; give two files"
        )
        lost = tmp_path / "nowhere" / "x.tsv"
        assert told("--out", lost) == f"{lost}: there is no folder {lost.parent}; create it first"
        (tmp_path / "folder.tsv").mkdir()
        folder = tmp_path / "folder.tsv"
        assert told("--out", folder, "--force") == f"{folder}: a folder; name a file to write"
        os.mkfifo(tmp_path / "pipe.tsv")
        pipe = tmp_path / "pipe.tsv"
        assert told("--out", pipe, "--force") == f"{pipe}: not a plain file; choose another path"
        assert told("--max-length-ratio", "0.5") == "--max-length-ratio must be at least 1, or 0 for no limit, not 0.5"


class TestStats:
    def test_json(self, capsys: pytest.CaptureFixture[str], corpus: Path) -> None:
        found = answer(capsys, "stats", "--source", corpus)
        assert (found["pairs"], found["duplicates"]) == (6, 1)
        source = found["source"]
        assert isinstance(source, dict)
        assert source["distinct"] == 4
        assert source["words"]["buckets"]["1-5"] == 5

    def test_plain_output_has_tabs(self, capsys: pytest.CaptureFixture[str], corpus: Path) -> None:
        assert data("stats", "--source", corpus) == 0
        lines = capsys.readouterr().out.splitlines()
        # 72 characters for 71
        assert lines[:4] == ["pairs\t6", "repeated pairs\t1", "ratio\t1.0141", "distinct sentences\t4\t5"]
        assert "sentences with 1-5 words\t5\t6" in lines

    @pytest.mark.usefixtures("_terminal")
    def test_the_sides_face_each_other(self, capsys: pytest.CaptureFixture[str], corpus: Path) -> None:
        assert data("stats", "--source", corpus, "--from", "en", "--to", "it") == 0
        shown = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
        lines = shown.splitlines()
        assert max(map(len, lines)) <= 80
        assert "  a.tsv  6 pairs" in lines
        assert " " * 27 + "en" + " " * 22 + "it" in lines
        # A side has (80 - 22) / 2 - 2 = 27 columns, a bar two fewer; the longest fills it, 5 against 6 is 21 of 25.
        assert " " * 6 + "█" * 21 + " 5" + "1-5".center(22) + "6 " + "█" * 25 in lines
        assert "  1 pair occurred before, exactly the same" in lines


class TestSplit:
    def test_writes_the_parts(self, capsys: pytest.CaptureFixture[str], singles: Path, tmp_path: Path) -> None:
        out = tmp_path / "new" / "parts"
        arguments = ("split", "--source", singles, "--valid", "10", "--test", "0.05", "--from", "en", "--to", "it")
        found = answer(capsys, *arguments, "--out", out)
        assert found["sizes"] == {"train": 85, "valid": 10, "test": 5}
        assert sorted(path.name for path in out.iterdir()) == [
            f"{part}.{side}" for part in ("test", "train", "valid") for side in ("en", "it")
        ]
        sources = [(out / f"{part}.en").read_text().splitlines() for part in ("train", "valid", "test")]
        targets = [(out / f"{part}.it").read_text().splitlines() for part in ("train", "valid", "test")]
        assert [len(part) for part in sources] == [85, 10, 5]
        assert sorted(itertools.chain(*sources)) == sorted(f"source {number}" for number in range(100))
        assert [[line.replace("source", "target") for line in part] for part in sources] == targets

    def test_the_seed_decides(self, capsys: pytest.CaptureFixture[str], singles: Path, tmp_path: Path) -> None:
        for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
            answer(capsys, "split", "--source", singles, "--valid", "10", "--out", tmp_path / name, "--seed", seed)
        one, same, other = ((tmp_path / name / "valid.source").read_text() for name in "abc")
        assert one == same != other
        assert not (tmp_path / "a" / "test.source").exists()

    @pytest.mark.usefixtures("_terminal")
    def test_terminal_output(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        path = tmp_path / "knots.tsv"
        path.write_text("".join(f"source {number // 4}\ttarget {number}\n" for number in range(100)))
        assert data("split", "--source", path, "--valid", "6", "--out", tmp_path / "parts") == 0
        shown = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
        assert "  train   96   96.0 %   ██████████" in shown
        assert "  valid has fewer than 6 pairs: the remaining groups are too large" in shown
        assert "  25 groups of pairs, which share no sentence with each other; the largest has 4 pairs" in shown

    def test_complaints(self, capsys: pytest.CaptureFixture[str], singles: Path, tmp_path: Path) -> None:
        def told(*arguments: str | Path) -> str:
            return complaint(capsys, "split", "--source", singles, *arguments)

        out = tmp_path / "parts"
        fewer = "hold out fewer (--valid and --test, or data.valid_size and data.test_size)"
        leave = f"valid 60 and test 40 leave nothing of 100 pairs for train; {fewer}"
        assert told("--valid", "60", "--test", "0.4", "--out", out) == leave
        assert not out.exists()
        number = '"ten" is neither a number of pairs nor a share such as 0.05 (see "regard data split --help")'
        assert told("--valid", "ten", "--out", out) == f"argument --valid: {number}"
        out.mkdir()
        (out / "train.source").touch()
        exists = f"{out / 'train.source'}: exists already; add --force to write over it"
        assert told("--valid", "10", "--out", out) == exists
        assert (
            told("--valid", "10", "--out", singles)
            == f"--out {singles}: cannot make this folder (File exists); choose another"
        )


def test_help_has_an_example_of_each_action(capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("stats", "clean", "split"):
        with pytest.raises(SystemExit) as left:
            data(action, "--help")
        assert left.value.code == 0
        assert f"  regard data {action} --source " in capsys.readouterr().out


def test_nothing_heavy_is_imported() -> None:
    heavy = "torch numpy rich pyarrow polib backports.zstd"
    code = f"import sys, regard.cli.data; print([name for name in '{heavy}'.split() if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
