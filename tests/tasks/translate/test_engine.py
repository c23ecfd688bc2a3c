"""CTranslate2 behind the same answers."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest

from regard.cli import main
from regard.config import SearchSettings
from regard.data.pairs import Pair
from regard.errors import SettingsError
from regard.export import export_run
from regard.run import Run
from regard.tasks.translate.engine import DEPENDENT, OUTSIDE, SUPPORTED, Engine, choose_engine, load_fast
from regard.tasks.translate.output import TranslationFile
from regard.tasks.translate.translation import texts_of
from regard.tasks.translate.translator import Workers, load
from tests.export.runs import random_recipe, random_run, sentences

pytest.importorskip("ctranslate2")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return random_run(tmp_path_factory.mktemp("fast") / "run", random_recipe())


def test_both_engines_give_the_same_answers(run):
    texts = ["", *sentences(6)]
    fast = load_fast(run, "float32").translate(texts, nbest=2, details=True, retry_failures=False)
    slow = load(run.folder).translate(texts, nbest=2, retry_failures=False)
    for one, other in zip(fast, slow, strict=True):
        assert (one.text, one.tokens, one.finished, one.flags) == (
            other.text,
            other.tokens,
            other.finished,
            other.flags,
        )
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert [found.text for found in one.alternatives] == [found.text for found in other.alternatives]


def test_the_engine_follows_from_what_is_asked(run):
    assert choose_engine("auto", run, SearchSettings()) == "ctranslate2"
    assert choose_engine("torch", run, SearchSettings()) == "torch"
    assert choose_engine("auto", run, SearchSettings(sample=True)) == "torch"
    for forbids in (SearchSettings(no_repeat_ngram_size=3), SearchSettings(min_length=2)):
        assert choose_engine("auto", run, forbids) == "torch"
        assert choose_engine("ctranslate2", run, forbids) == "ctranslate2"
    assert choose_engine("auto", run, SearchSettings(), ["--search-tree"]) == "torch"
    with pytest.raises(SettingsError, match=r"--engine ctranslate2: .+ search\.coverage_penalty"):
        choose_engine("ctranslate2", run, SearchSettings(coverage_penalty=0.2))


def test_what_cannot_be_converted_is_left_to_torch(tmp_path):
    other = random_run(tmp_path / "run", random_recipe({"attention_window": 4}))
    assert choose_engine("auto", other, SearchSettings()) == "torch"


def test_a_setting_that_ctranslate2_is_not_known_to_support_goes_to_torch(run):
    @dataclass(frozen=True)
    class Later(SearchSettings):
        new_setting: int = 0

    assert choose_engine("auto", run, Later()) == "ctranslate2"
    assert choose_engine("auto", run, Later(new_setting=1)) == "torch"
    with pytest.raises(SettingsError, match=r"CTranslate2 does not support search\.new_setting"):
        choose_engine("ctranslate2", run, Later(new_setting=1))


def test_the_lists_name_every_setting_at_most_once_and_only_settings():
    names = [*SUPPORTED, *OUTSIDE, *DEPENDENT]
    assert len(names) == len(set(names))
    assert set(names) <= {field.name for field in fields(SearchSettings)}


def test_first_use_converts_once_and_translates_nothing_else(tmp_path, monkeypatch):
    run = random_run(tmp_path / "run", random_recipe())
    run.write_held_out([Pair(text, text) for text in sentences(3)])
    converted, translated, logged = [], [], []

    def count(run, name, folder, **options):
        converted.append(options["quantization"])
        return export_run(run, name, folder, **options)

    monkeypatch.setattr("regard.tasks.translate.engine.export_run", count)
    monkeypatch.setattr(
        Engine, "translate_unordered", lambda self, sources, *_, **__: translated.append(sources) or iter(())
    )
    load_fast(run, "int8", logged.append)
    load_fast(run, "int8", logged.append)
    assert (converted, translated) == (["int8"], [])
    [line] = logged
    assert f'"regard export {run.folder} --to ctranslate2 --quantization int8" measures' in line


def test_a_sentence_is_translated_as_it_stands(run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = sentences(2)
    translate = ["translate", str(run.folder)]
    Path("in.en").write_text(f"{first}\n{second}\n")
    assert main([*translate, "in.en"]) == 0
    expected = capsys.readouterr().out.splitlines()
    assert main([*translate, first]) == 0
    assert capsys.readouterr().out.splitlines() == expected[:1]
    assert main([*translate, f"{first}\n{second}"]) == 0
    assert capsys.readouterr().out.splitlines() == expected
    assert main([*translate, first, "--out", "out.it"]) == 0
    assert Path("out.it").read_text().splitlines() == expected[:1]
    Path(first).write_text(second)  # the name of an existing file means the file
    assert main([*translate, first]) == 0
    assert capsys.readouterr().out.splitlines() == expected[1:]


def test_a_text_may_mention_a_file_or_be_longer_than_any_file_name(run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text in ("I am in page.html", "Hello", "Hello.", " ".join(sentences(1) * 400)):
        assert main(["translate", str(run.folder), text, "--beam", "1", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["source"] == text
    assert main(["translate", str(run.folder), "<b>I</b> am here", "--format", "html", "--beam", "1"]) == 0
    assert "<b>" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["news.en", "news.en.gz", "there/news", "page.html"])
def test_what_looks_like_a_file_name_is_one(run, tmp_path, capsys, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path("there").mkdir()
    assert main(["translate", str(run.folder), name]) == 2
    assert f"{name}: no such file" in capsys.readouterr().err
    assert main(["translate", str(run.folder), " "]) == 2
    assert "the text to translate is empty" in capsys.readouterr().err


def test_a_file_is_translated_and_gone_on_with(run, tmp_path, capsys):
    source, out = tmp_path / "in.en", tmp_path / "out.it"
    source.write_text("\n".join(["I am here.", "", *sentences(4)]) + "\n")
    arguments = ["translate", str(run.folder), str(source), "--out", str(out), "--quantization", "float32"]
    assert main(arguments) == 0
    whole = out.read_text()
    assert whole.count("\n") == 6
    assert whole.splitlines()[1] == ""
    assert main([*arguments, "--scores"]) == 0
    assert all(len(line.split("\t")) == 3 for line in out.read_text().splitlines())
    assert main([*arguments[:3], "--resume"]) == 2
    assert "--out" in capsys.readouterr().err


def test_what_would_lose_text_or_mean_nothing_is_refused(run, tmp_path, capsys):
    source = tmp_path / "in.en"
    source.write_text("I am here.\n")
    start = ["translate", str(run.folder), str(source)]
    bad = {
        ("--out", str(source)): "is the file to translate",
        ("--out", str(tmp_path / "." / "in.en")): "is the file to translate",
        ("--top-k", "5"): "--top-k is for sampling: add --sample",
        ("--engine", "torch", "--quantization", "int8"): "--quantization is for --engine ctranslate2",
    }
    for more, message in bad.items():
        assert main([*start, *more]) == 2
        assert message in capsys.readouterr().err
    assert source.read_text() == "I am here.\n"


def test_a_half_made_file_of_another_text_is_not_gone_on_with(run, tmp_path, capsys):
    source, out = tmp_path / "in.en", tmp_path / "out.it"
    source.write_text("I am here.\nI am there.\n")
    arguments = ["translate", str(run.folder), str(source), "--out", str(out), "--quantization", "float32"]

    def interrupt(self, lines):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TranslationFile, "write", interrupt)
        assert main(arguments) == 130
    assert (tmp_path / "out.it.part").is_file()
    source.write_text("I am there.\n")
    assert main([*arguments, "--resume"]) == 2
    source.write_text("I am here.\nI am there.\n")
    assert main([*arguments, "--resume", "--ensemble", str(run.folder)]) == 2
    assert capsys.readouterr().err.count("was made with another file, run or setting") == 2
    assert main([*arguments, "--resume"]) == 0
    assert out.read_text().count("\n") == 2


def test_what_else_has_changed_since_a_file_was_begun_is_seen(tmp_path, capsys, monkeypatch):
    run = random_run(tmp_path / "run", random_recipe())
    twin = random_run(tmp_path / "twin", random_recipe(), seed=1)
    (tmp_path / "in.en").write_text("I am here.\n")
    start = ["translate", str(run.folder), str(tmp_path / "in.en"), "--out", str(tmp_path / "out.it"), "--beam", "2"]
    together = [*start, "--ensemble", str(twin.folder)]

    def begin(arguments):
        for path in tmp_path.glob("out.it*"):
            path.unlink()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TranslationFile, "write", lambda self, lines: os.kill(os.getpid(), signal.SIGTERM))
            assert main(arguments) == 143
        capsys.readouterr()

    def is_refused(arguments):
        code = main([*arguments, "--resume"])
        return code == 2 and "was made with another file, run or setting" in capsys.readouterr().err

    begin(together)
    later = (twin.folder / "weights.safetensors").stat().st_mtime_ns + 1
    os.utime(twin.folder / "weights.safetensors", ns=(later, later))
    assert is_refused(together)  # a member was trained on

    begin(start)
    with monkeypatch.context() as patch:
        patch.setattr("regard.tasks.translate.engine.importlib.util.find_spec", lambda name: None)
        assert is_refused(start)  # auto is torch now
    assert is_refused([*start, "--quantization", "float32"])
    run.write_recipe(replace(run.recipe, search=replace(run.recipe.search, length_penalty=0.5)))
    assert is_refused(start)  # the run has another search
    run.write_recipe(replace(run.recipe, search=replace(run.recipe.search, length_penalty=1.0)))
    assert main([*start, "--engine", "ctranslate2", "--quantization", "int8", "--resume"]) == 0  # what auto was


def test_a_folder_that_cannot_be_written_is_left_to_torch(tmp_path, capsys, monkeypatch):
    run = random_run(tmp_path / "run", random_recipe())
    (tmp_path / "in.en").write_text("I am here.\n")
    start = ["translate", str(run.folder), str(tmp_path / "in.en")]
    assert main([*start, "--engine", "torch"]) == 0
    expected = capsys.readouterr().out
    said = f"{run.folder}/ctranslate2-int8: the model converted for CTranslate2 cannot be written (no permission)"
    with monkeypatch.context() as patch:
        patch.setattr("regard.tasks.translate.engine.os.access", lambda path, mode: False)
        assert main(start) == 0
        assert capsys.readouterr() == (expected, f"{said}; translating with torch\n")
        assert main([*start, "--engine", "ctranslate2"]) == 2
        assert capsys.readouterr().err == f"regard: {said}\n"
    with monkeypatch.context() as patch:  # known only when it is written, as on a full disk
        patch.setattr("regard.files._sync", lambda file: os.mkdir("/proc/none"))
        assert main(start) == 0
        assert re.search(r"cannot be written \(.+\); translating with torch\n$", capsys.readouterr().err)
    assert not list(run.folder.glob("*ctranslate2*"))
    load_fast(run)
    monkeypatch.setattr("regard.tasks.translate.engine.os.access", lambda path, mode: False)
    load_fast(run)  # what was converted before is there


def test_of_two_that_convert_at_once_one_waits_for_the_other(tmp_path, monkeypatch):
    run = random_run(tmp_path / "run", random_recipe())
    made = []

    def slowly(*arguments, **options):
        time.sleep(0.3)
        made.append(export_run(*arguments, **options))

    monkeypatch.setattr("regard.tasks.translate.engine.export_run", slowly)
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(load_fast, Run.open(run.folder), "int8") for _ in range(2)]
        answers = [one.result().translate(["I am here."]) for one in both]
    assert len(made) == 1
    assert answers[0] == answers[1]


def test_sigterm_leaves_what_is_done_and_says_so(run, tmp_path, capsys):
    (tmp_path / "in.en").write_text("I am here.\n")
    arguments = ["translate", str(run.folder), str(tmp_path / "in.en"), "--out", str(tmp_path / "out.it")]
    before = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TranslationFile, "write", lambda self, lines: os.kill(os.getpid(), signal.SIGTERM))
        assert main(arguments) == 143
    assert "continue with the same command and --resume" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == before
    assert main([*arguments, "--resume"]) == 0


def test_a_minimum_beyond_the_limit_is_the_limit(run):
    texts = sentences(3)
    for fast in (load_fast(run, "float32"), load(run.folder)):
        answers = fast.translate(texts, min_length=400, max_length_ratio=1.0, max_length_extra=2, retry_failures=False)
        assert all(len(answer.tokens) >= 2 and not answer.finished for answer in answers)


def test_scores_are_the_models_own_also_where_something_is_forbidden(run):
    fast, slow = load_fast(run, "float32"), load(run.folder)
    for search in ({"min_length": 6}, {"no_repeat_ngram_size": 1}, {"no_repeat_ngram_size": 2, "length_penalty": 0.5}):
        search |= {"max_length_ratio": 1.0, "max_length_extra": 2}
        for answer in fast.translate(sentences(4), details=True, retry_failures=False, nbest=2, **search):
            found = [answer, *answer.alternatives]
            assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
            for one in found:
                size = len(one.tokens) + one.finished
                assert len(one.log_probs) == size
                assert one.score == pytest.approx(one.log_prob / size ** search.get("length_penalty", 1.0))
            if answer.finished:
                [own] = slow.score([answer.source], [answer.text])
                if own.tokens == answer.tokens:
                    assert answer.log_prob == pytest.approx(own.log_prob, abs=0.3)  # here without the unknown token


def test_a_limit_of_nothing_is_a_limit_of_one(run):
    for engine in (load_fast(run, "float32"), load(run.folder)):
        [answer] = engine.translate(["I am"], max_length_ratio=0.1, max_length_extra=0, retry_failures=False)
        assert len(answer.tokens) <= 1


def test_the_best_of_each_line_come_after_its_number(run, tmp_path, capsys):
    (tmp_path / "in.en").write_text("I am here.\n\nI am there.\n")
    assert main(["translate", str(run.folder), str(tmp_path / "in.en"), "--nbest", "2"]) == 0
    numbers = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert sorted(set(numbers)) == ["1", "2", "3"]
    assert numbers == sorted(numbers)


def test_a_full_disk_is_told_in_one_line(run, tmp_path):
    (tmp_path / "in.en").write_text("I am here.\n")
    command = [sys.executable, "-m", "regard", "translate", str(run.folder), str(tmp_path / "in.en")]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == "regard: cannot write the output (No space left on device)\n"


def test_torch_is_not_imported_for_a_converted_run(run):
    load_fast(run)
    script = (
        "import sys; from regard.cli import main; "
        f"code = main(['translate', {str(run.folder)!r}, '--json']); "
        "print(code, 'torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], input="I am here.\n", capture_output=True, text=True)
    assert done.stderr.split() == ["0", "False"]
    answer = json.loads(done.stdout)
    assert answer["source"] == "I am here."
    assert len(answer["log_probs"]) == len(answer["tokens"]) + answer["finished"]


def test_workers_do_not_outlive_who_asks():
    """A process starts one that watches it, and is gone."""
    watch = "import os; parent = os.getppid(); from regard.tasks.translate.translator import _end_with; "
    watch += "print(1, flush=True); _end_with(parent)"  # asked for before the parent may end
    ask = f"import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {watch!r}], stdout=-1); "
    ask += "child.stdout.readline(); print(child.pid)"
    child = int(subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout)
    deadline = time.monotonic() + 60
    while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not Path(f"/proc/{child}").exists()


def test_workers_give_what_one_process_gives(run):
    texts = ["", *sentences(7)]
    workers = Workers([run.folder], 2)
    try:
        found = workers.translate(texts, beam_size=2)
    finally:
        workers.close()
    assert [answer.text for answer in found] == texts_of(load(run.folder).translate(texts, beam_size=2))
