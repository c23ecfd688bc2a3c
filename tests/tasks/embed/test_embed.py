"""Word vectors as a task: training, neighbours, analogies, the server's answers, and what the commands refuse."""

import json
import random
from types import SimpleNamespace

import httpx
import numpy as np
import pytest

import regard
from regard.cli import main
from regard.config import Recipe
from regard.config.recipe import make_recipe
from regard.errors import ModelError, SettingsError
from regard.run import Run
from regard.tasks.dataset import Parts
from regard.tasks.embed.data import read_counts
from regard.tasks.embed.plan import make_plan
from regard.tasks.embed.report import word_plane
from regard.tasks.embed.training import TRAINING
from regard.tasks.embed.vectors import parse_query
from tests.small_vectors import train_arguments
from tests.surface.serving import running

GROUPS = {"animals": ["dog", "cat", "horse", "cow"], "numbers": ["one", "two", "three", "four"]}


def write_groups(path, count=1500):
    """Sentences with words of only one group, so that the words of a group are similar."""
    chance = random.Random(1)
    lines = []
    for _ in range(count):
        words = chance.sample(GROUPS[chance.choice(list(GROUPS))], 3)
        lines.append(f"The {words[0]} and {words[1]}, {words[2]} {chance.choice(['here', 'there', 'rare'])}.")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    texts = write_groups(folder / "texts.txt")
    few = ("train.max_steps=250", "train.validate_every=100", "embed.subsample=0")
    assert main(train_arguments(texts, folder / "run", *few)) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def vectors(run):
    return regard.load(run)


def test_words_of_a_group_become_similar(run, vectors):
    for words in GROUPS.values():
        for word in words:
            assert {one.word for one in vectors.neighbours(word, 3)} == set(words) - {word}
    card = json.loads((run / "card.json").read_text())
    assert card["scores"]["test"]["pair_accuracy"] > 0.6  # 0.5 before training
    assert card["scores"]["test"]["loss"] < 6 * np.log(2)


def test_the_report_shows_the_words_and_their_neighbours(run, vectors, monkeypatch):
    monkeypatch.setattr("regard.tasks.embed.report.EVERYWHERE", 1.0)
    data = SimpleNamespace(counts=read_counts(Run.open(run)))
    words = {one["word"]: one for one in word_plane(vectors, data)}
    assert words.keys() == {word for word in vectors.words if word.isalpha()}
    expected = [[one.word, round(one.similarity, 3)] for one in vectors.neighbours("dog", 6)]
    assert words["dog"]["neighbours"] == expected
    assert all(0 <= one["x"] <= 1 and 0 <= one["y"] <= 1 for one in words.values())
    assert '"plane":[' in (run / "report.html").read_text()


def test_similarity_is_the_cosine(vectors):
    dog, cat = vectors.vector("dog"), vectors.vector("cat")
    cosine = dog @ cat / np.linalg.norm(dog) / np.linalg.norm(cat)
    assert vectors.similarity("dog", "cat") == pytest.approx(cosine, abs=1e-6)
    assert dict(vectors.neighbours("dog", 20))["cat"] == pytest.approx(cosine, abs=1e-6)
    assert "Dog" in vectors
    assert vectors.vector("DOG").tolist() == dog.tolist()
    assert "bird" not in vectors


def test_a_sum_leaves_its_own_words_out(vectors):
    found = vectors.neighbours("dog - one + two", 100)
    assert len(found) == len(vectors) - 3
    assert not {"dog", "one", "two"} & {one.word for one in found}
    dog, one, two, best = (vectors.directions[vectors.number(word)] for word in ("dog", "one", "two", found[0].word))
    total = dog - one + two
    assert found[0].similarity == pytest.approx(total @ best / np.linalg.norm(total), abs=1e-5)


@pytest.mark.parametrize("query", ["", "dog cat", "dog +", "+ dog", "dog - - cat", "-"])
def test_a_wrong_sum_is_one_line(query):
    with pytest.raises(ModelError, match=r"write e\.g\. king - man"):
        parse_query(query)


def test_the_commands(run, tmp_path, capsys):
    assert main(["neighbours", str(run), "dog", "two", "--count", "3", "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["query"] == "dog"
    assert {one["word"] for one in second["neighbours"]} == {"one", "three", "four"}
    assert main(["neighbours", str(run), "dog", "-", "cat", "+", "two", "--count", "1"]) == 0
    assert capsys.readouterr().out.startswith("dog - cat + two")
    questions = tmp_path / "questions.txt"
    questions.write_text(": groups\ndog cat one two\nDOG CAT COW HORSE\n: others\ndog cat bird fish\n")
    assert main(["analogies", str(run), str(questions), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["questions"], found["known"]) == (3, 2)
    assert found["correct"] == sum(one["correct"] for one in found["answers"])
    assert found["categories"]["others"]["known"] == 0
    [query] = found["answers"][:1]
    others = regard.load(run).neighbours("cat - dog + one", 100)
    assert query["answer"] == others[0].word
    assert query["rank"] == 1 + [one.word for one in others].index("two")
    assert main(["analogies", str(run), str(questions)]) == 0
    assert "groups" in capsys.readouterr().out
    texts = write_groups(tmp_path / "more.txt", 50)
    assert main(["evaluate", str(run), "--source", str(texts), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["known_words"] == scores["words"]
    assert scores["pair_accuracy"] > 0.6
    assert main(["evaluate", str(run), "--source", str(texts)]) == 0
    assert "100.0%" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["neighbours", "RUN", "dogg"], 'did you mean "dog"?'),
        (["neighbours", "RUN", "dog", "+"], "a word is missing at the end"),
        (["neighbours", "RUN", "dog", "--count", "0"], "--count must be at least 1"),
        (["analogies", "RUN", "THREE"], "a question is four words"),
        (["analogies", "RUN", "missing.txt"], "missing.txt"),
        (["evaluate", "RUN", "--source", "OTHER"], "no text has two words with a vector"),
        (["translate", "RUN", "a"], 'use "regard neighbours'),
        (["train", "--task", "embed", "OTHER", "--set", "tokenizer.kind=bpe"], 'tokenizer.kind = "bpe" is not for'),
        (["train", "--task", "embed", "OTHER", "--set", "train.optimizer=adam"], 'set it to "adagrad"'),
        (["train", "--task", "embed", "OTHER", "--set", "train.r_drop=1"], "train.r_drop is not supported"),
        (["train", "--task", "embed", "SINGLE", "--out", "OUT"], "no text has two words of the vocabulary"),
    ],
)
def test_bad_input_is_one_line(run, tmp_path, capsys, arguments, message):
    files = {
        "THREE": "dog cat one\n",
        "OTHER": "".join(f"bird{one} fish{one}\n" for one in range(30)),
        "SINGLE": "".join(f"word{number}\n" for number in range(60)),
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    places = {name: str(tmp_path / name) for name in (*files, "OUT")} | {"RUN": str(run)}
    capsys.readouterr()
    assert main([places.get(word, word) for word in arguments]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("regard: ")]
    assert len(errors) == 1
    assert message in errors[0]
    assert not (tmp_path / "OUT").exists()


def test_damaged_counts_are_one_line(run, tmp_path):
    import shutil

    copy = shutil.copytree(run, tmp_path / "copy")
    for content in ("[1, 2]", "no JSON", "[]"):
        (copy / "word-counts.json").write_text(content)
        with pytest.raises(regard.errors.RunError, match=r"word-counts.json: the counts of the words cannot be read"):
            regard.load(copy)


def test_the_plan_counts_the_words():
    texts = Parts("texts", [(["The dog, the cat."] * 50 + ["a rare word"], 1.0)])
    plan = {choice.name: choice.value for choice in make_plan(texts, {"train": {"max_steps": 7}})}
    assert plan["tokenizer.vocab_size"] == 5 + 4  # the dog , cat . and the special tokens
    assert "train.max_steps" not in plan
    assert make_recipe({"data": {"task": "embed"}, "train": {"max_steps": 7}}).task.window == 5
    assert all(choice.reason for choice in make_plan(texts, {}))


def test_settings_of_other_tasks_are_refused():
    with pytest.raises(SettingsError, match=r"tokenizer\.kind"):
        TRAINING.check(Recipe())


def test_the_server_answers(run):
    with running(run) as port:
        address = f"http://127.0.0.1:{port}/v1/embed"
        body = {"q": ["dog", "one - two + three", "bird"], "count": 3}
        found = httpx.post(address, json=body, timeout=60).json()["results"]
        vector = httpx.post(address, json={"q": "dog", "vector": True}, timeout=60).json()["results"][0]["vector"]
        assert httpx.post(address, json={"q": "dog", "count": 0}, timeout=60).status_code == 400
    assert {one["word"] for one in found[0]["neighbours"]} == {"cat", "horse", "cow"}
    assert [len(one["neighbours"]) for one in found] == [3, 3, 0]
    assert "is not among the" in found[2]["error"]
    assert vector == pytest.approx(regard.load(run).vector("dog").tolist())
