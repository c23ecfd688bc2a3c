"""CTranslate2 behind the same answers."""

import json
import re
import subprocess
import sys

import pytest
from tests.unit.convert.runs import random_recipe, random_run, sentences

from regard.cli import main
from regard.config import Search
from regard.data.formats import Pair
from regard.errors import SettingsError
from regard.tasks.fast import choose_engine, load_fast
from regard.tasks.translate import load, texts_of
from regard.tasks.workers import Workers

pytest.importorskip("ctranslate2")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return random_run(tmp_path_factory.mktemp("fast") / "run", random_recipe())


def test_both_engines_give_the_same_answers(run):
    texts = ["", *sentences(6)]
    fast = load_fast(run, "float32").translate(texts, nbest=2, details=True, retry=False)
    slow = load(run.folder).translate(texts, nbest=2, retry=False)
    for one, other in zip(fast, slow, strict=True):
        assert (one.text, one.tokens, one.ended, one.flags) == (other.text, other.tokens, other.ended, other.flags)
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert [found.text for found in one.alternatives] == [found.text for found in other.alternatives]


def test_the_engine_follows_from_what_is_asked(run):
    assert choose_engine("auto", run, Search()) == "ctranslate2"
    assert choose_engine("torch", run, Search()) == "torch"
    assert choose_engine("auto", run, Search(sample=True)) == "torch"
    assert choose_engine("auto", run, Search(), ["--tree"]) == "torch"
    with pytest.raises(SettingsError, match=r"--engine ctranslate2: search\.coverage_penalty"):
        choose_engine("ctranslate2", run, Search(coverage_penalty=0.2))


def test_what_cannot_be_converted_is_left_to_torch(tmp_path):
    other = random_run(tmp_path / "run", random_recipe({"window": 4}))
    assert choose_engine("auto", other, Search()) == "torch"


def test_the_first_conversion_tells_what_it_costs(tmp_path):
    run = random_run(tmp_path / "run", random_recipe())
    run.write_held_out([Pair(text, text) for text in sentences(3)])
    heard = []
    load_fast(run, "int8", heard.append)
    load_fast(run, "int8", heard.append)
    [said] = heard
    assert re.search(r"converted for CTranslate2; BLEU on 3 held-out sentences: float32 [\d.]+, int8 [\d.]+", said)


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
    assert len(answer["log_probs"]) == len(answer["tokens"]) + 1


def test_workers_give_what_one_process_gives(run):
    texts = ["", *sentences(7)]
    workers = Workers([run.folder], 2)
    try:
        found = workers.translate(texts, beam=2)
    finally:
        workers.close()
    assert [answer.text for answer in found] == texts_of(load(run.folder).translate(texts, beam=2))
