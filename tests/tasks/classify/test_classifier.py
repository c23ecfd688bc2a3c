"""A small classifier from file to report, and what its commands say."""

import gzip
import io
import json
import random
import shutil
import sys

import pytest

import regard
from regard.cli import main
from regard.config import Corpus
from regard.config.recipe import make_recipe
from regard.run import Run
from regard.tasks.classify.classifier import Classifier
from regard.tasks.classify.document_report import label_words
from regard.tasks.classify.document_text import ShownWindow, shade
from regard.tasks.classify.documents import LabeledDocument, read_documents, read_examples
from regard.text.tokenizer import Piece
from tests.reviews import BAD, GOOD, review, train_arguments, write_reviews

STEPS = "train.max_steps=150"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A trained run and its data."""
    folder = tmp_path_factory.mktemp("reviews")
    data = write_reviews(folder / "train.tsv", 300)
    assert main(train_arguments(data, folder / "run", STEPS)) == 0
    return folder


@pytest.fixture(scope="module")
def classifier(folder):
    return regard.load(folder / "run")


def test_the_run_folder_is_complete(folder):
    names = {path.name for path in (folder / "run").iterdir() if not path.name.startswith(".")}
    assert names == {
        "recipe.toml", "tokenizer.json", "labels.json", "weights.safetensors", "metrics.jsonl", "card.json",
        "report.html", "held-out.jsonl", "checkpoints", "checksums.json",
    }  # fmt: skip
    run = Run.open(folder / "run")
    assert run.labels == ("bad", "good")
    card = run.card
    assert card["documents"] == {"train": 240, "valid": 30, "test": 30}
    assert set(card["labels"]) == {"bad", "good"}
    assert set(card["scores"]) == {"valid", "test"}
    assert card["training"]["flops"] > 0
    assert {choice["name"] for choice in card["plan"]} >= {"model.arch", "tokenizer.vocab_size", "classify.max_tokens"}
    assert card["tuned"] == {"classify.temperature": run.recipe.task.temperature}


def test_held_out_documents_can_be_read_back(folder):
    known = {(one.text, one.labels) for one in read_documents(Corpus(str(folder / "train.tsv")))}
    kept = {(one["text"], tuple(one["labels"])) for one in Run.open(folder / "run").held_out_records()}
    assert len(kept) == 30
    assert kept <= known


def test_it_learns_what_decides(folder, classifier):
    assert Run.open(folder / "run").card["scores"]["test"]["accuracy"] >= 0.9
    chance = random.Random(7)
    documents = [LabeledDocument(("good" if good else "bad",), review(good, chance)) for good in [True, False] * 20]
    found = classifier.score(documents)
    assert found.accuracy >= 0.9
    verdicts = classifier.classify([document.text for document in documents], explain=True)
    words = {one["label"]: {word["text"] for word in one["words"][:3]} for one in label_words(verdicts)}
    for label, own, foreign in (("good", GOOD, BAD), ("bad", BAD, GOOD)):
        assert words[label] & set(own)
        assert not words[label] & set(foreign)


def test_verdicts_come_in_order_and_do_not_depend_on_their_neighbours(classifier):
    assert isinstance(classifier, Classifier)
    texts = ["A lovely film.", "", "Dull. " * 30, "It was awful, and boring.", "🦓 猫は好き。 пример"]
    together = classifier.classify(texts)
    assert [verdict.text for verdict in together] == texts
    for text, verdict in zip(texts, together, strict=True):
        [alone] = classifier.classify(text)
        assert alone.label == verdict.label
        assert alone.probability == pytest.approx(verdict.probability, abs=1e-6)
        assert sum(verdict.probabilities.values()) == pytest.approx(1.0)
    assert classifier.classify([]) == []


def test_explaining_changes_no_answer_and_adds_up(classifier):
    text = "The film was lovely. People came with their friends.<br />On a Monday!"
    [plain], [explained] = classifier.classify([text]), classifier.classify([text], explain=True)
    assert plain.sentences is None
    assert explained.probability == pytest.approx(plain.probability, abs=1e-6)
    sentences = explained.sentences
    assert [sentence.text for sentence in sentences] == [
        "the film was lovely.", "people came with their friends.", "on a monday!",
    ]  # fmt: skip
    assert sum(sentence.weight for sentence in sentences) == pytest.approx(1.0, abs=1e-5)
    for sentence in sentences:
        assert sum(word.weight for word in sentence.words) == pytest.approx(1.0, abs=1e-5)
    heaviest, _ = max(explained.shares(), key=lambda entry: entry[1])
    assert heaviest.text == "lovely"
    made = json.loads(json.dumps(explained.as_dict()))
    assert made["sentences"][0]["words"][3]["text"] == "lovely"
    assert "sentences" not in plain.as_dict()


@pytest.mark.parametrize("method", ["integrated", "occlusion"])
def test_words_are_credited_for_the_label_they_made_likely(classifier, method):
    text = "The film was lovely. People came with friends."
    found = {word.text: word.weight for word in classifier.attribute(text, method=method)}
    assert max(found, key=found.get) == "lovely"
    against = {word.text: word.weight for word in classifier.attribute(text, "bad", method)}
    assert min(against, key=against.get) == "lovely"
    with pytest.raises(regard.RegardError, match='unknown to this run; did you mean "good"'):
        classifier.attribute(text, "goood")


def test_a_very_long_document_is_cut_and_says_so(classifier):
    [verdict] = classifier.classify(["The film was dull. " * 5000], explain=True)
    limit = classifier.recipe.task.max_tokens
    assert verdict.truncated_tokens == 25_000 - limit
    assert sum(len(sentence.words) for sentence in verdict.sentences) <= limit
    assert verdict.label == "bad"


def test_pieces_are_shaded_as_words():
    pieces = [Piece(5, "▁un", 0, 2), Piece(6, "happy", 2, 7), Piece(7, ",", 7, 8)]
    [sentence] = shade([ShownWindow("unhappy,", pieces)], [0.2, 0.5, 0.1])
    assert sentence.weight == pytest.approx(0.8)
    assert [(word.text, round(word.weight, 4)) for word in sentence.words] == [("unhappy", 0.875), (",", 0.125)]


# ---------------------------------------------------------------------------------------------------------------------
# Commands


def test_the_command_labels_lines_and_standard_input(folder, tmp_path, capsys, monkeypatch):
    file = tmp_path / "in.txt"
    file.write_text("A lovely film\n\nIt was dull\n")
    assert main(["classify", str(folder / "run"), str(file)]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [lines[0][0], lines[2][0]] == ["good", "bad"]
    assert all(0.5 <= float(probability) <= 1 for _, probability in lines)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Superb \U0001f600\n".encode())))
    assert main(["classify", str(folder / "run"), "--json"]) == 0
    [verdict] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert verdict["label"] == "good"
    assert verdict["text"] == "Superb \U0001f600"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert main(["classify", str(folder / "run")]) == 0
    assert capsys.readouterr().out == ""


def test_of_an_empty_file_nothing_is_made(folder, tmp_path, capsys):
    """As `regard translate` does it. There is nothing to score, though."""
    for name in ("a.txt", "a.tsv", "a.csv", "a.jsonl", "a.txt.gz"):
        (tmp_path / name).write_bytes(gzip.compress(b"") if name.endswith(".gz") else b"")
        assert main(["classify", str(folder / "run"), str(tmp_path / name)]) == 0
        assert capsys.readouterr() == ("", "")
    assert main(["classify", str(folder / "run"), str(tmp_path / "a.txt"), "--whole-file"]) == 0
    assert capsys.readouterr().out == ""
    (tmp_path / "a.tsv").touch()
    assert main(["classify", str(folder / "run"), str(tmp_path / "a.tsv"), "--score"]) == 2
    assert "the file is empty" in capsys.readouterr().err


def test_the_command_explains_and_takes_a_file_as_one_document(folder, tmp_path, capsys):
    file = tmp_path / "in.txt"
    file.write_text("A lovely film.\nWe came on a Monday.\n")
    assert main(["classify", str(folder / "run"), str(file), "--whole-file", "--explain"]) == 0
    shown = capsys.readouterr().out
    assert "a lovely film." in shown
    assert "we came on a monday." in shown
    assert "good" in shown
    assert "%" in shown


def test_the_command_scores(folder, capsys):
    assert main(["classify", str(folder / "run"), str(folder / "train.tsv"), "--score", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["examples"] == 300
    assert sum(map(sum, found["confusion"])) == 300
    assert main(["classify", str(folder / "run"), str(folder / "train.tsv"), "--score"]) == 0
    assert "row: correct label" in capsys.readouterr().out


def test_inspect_writes_a_page(folder, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["inspect", str(folder / "run"), "A lovely film. It was long.", "--out", str(page)]) == 0
    assert "lovely" in page.read_text()
    assert main(["inspect", str(folder / "run"), "A lovely film.", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["title"] == found["verdict"]["label"] == "good"


def test_info_shows_the_scores(folder, capsys):
    assert main(["info", str(folder / "run")]) == 0
    shown = capsys.readouterr().out
    assert "accuracy" in shown
    assert "calibration error" in shown
    for arch in ("han", "transformer-classifier"):
        assert main(["info", "--arch", arch]) == 0
        assert "FLOP per token" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["translate", "{run}", "{data}"], '{run} classifies documents, pictures or series; use "regard classify'),
        (["score", "{run}", "--source", "{data}"], "classifies documents"),
        (["heads", "{run}"], "classifies documents"),
        (["export", "{run}", "--to", "onnx", "--out", "{run}/x"], "cannot be exported to onnx"),
        (["inspect", "{run}", "--measure"], "is a run of the task classify: leave out --measure"),
        (["inspect", "{run}", " "], "there is no text to inspect"),
        (["classify", "{run}", "{data}.none"], "no such file"),
        (["classify", "{run}", "-", "--score"], "--score needs a file of labeled documents"),
        (
            ["resume", "{run}", "--set", "model.width=9"],
            "an existing run can only change settings of [train] and [search]",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(folder, capsys, arguments, message):
    names = {"run": folder / "run", "data": folder / "train.tsv"}
    assert main([argument.format(**names) for argument in arguments]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.format(**names) in error


def test_a_label_unknown_to_the_run_is_told(folder, tmp_path, capsys):
    (tmp_path / "other.tsv").write_text("odd\tA film\n")
    assert main(["classify", str(folder / "run"), str(tmp_path / "other.tsv"), "--score"]) == 2
    assert 'the label "odd" is unknown' in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------------------------
# Training


BAD_DATA = {
    "one label": ("".join(f"a\tx y {n}\n" for n in range(30)), "at least two labels"),
    "few": ("a\tx\nb\ty\n", "2 documents are too few"),
    "empty texts": ("a\t \n" * 30, "no document here has any text"),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data_is_one_line_and_leaves_nothing(tmp_path, capsys, case):
    text, message = BAD_DATA[case]
    (tmp_path / "data.tsv").write_text(text)
    assert main(["train", "--task", "classify", str(tmp_path / "data.tsv"), "--out", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.arch=transformer-tiny", 'is not for data.task = "classify"; choose from han, transformer-classifier'),
        ("train.metric=bleu", 'is not a metric of data.task = "classify"'),
        ("train.r_drop=1.0", "is not supported"),
        ("train.fsdp=true", "is not supported"),
        ("classify.multi_label=3", "must be true or false"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path, capsys, setting, message):
    data = write_reviews(tmp_path / "data.tsv", 40)
    arguments = ["train", "--task", "classify", str(data), "--out", str(tmp_path / "run"), "--set", setting]
    assert main(arguments) == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]


def test_a_classifier_is_no_translator(tmp_path, capsys):
    (tmp_path / "pairs.tsv").write_text("".join(f"word {n} here\tWort {n} hier\n" for n in range(60)))
    arguments = ["train", "--source", str(tmp_path / "pairs.tsv"), "--arch", "han", "--out", str(tmp_path / "run")]
    assert main(arguments) == 2
    assert 'is not for data.task = "translate"' in capsys.readouterr().err.strip().splitlines()[-1]


def test_interrupted_and_resumed_equals_never_interrupted(folder, tmp_path):
    run = tmp_path / "run"
    data = folder / "train.tsv"
    steady = ["train.cooldown=0", "train.patience=0"]
    assert main(train_arguments(data, run, "train.max_steps=20", *steady)) == 0
    assert main(["resume", str(run), "--set", "train.max_steps=30"]) == 0
    assert main(train_arguments(data, tmp_path / "whole", "train.max_steps=30", *steady)) == 0
    last = [sorted((one / "checkpoints").glob("*.safetensors"))[-1].read_bytes() for one in (run, tmp_path / "whole")]
    assert last[0] == last[1]


def test_finetuning_keeps_labels_and_vocabulary(folder, tmp_path, capsys):
    data, out = write_reviews(tmp_path / "more.jsonl", 60, seed=5), tmp_path / "tuned"
    arguments = ["finetune", str(folder / "run"), "--source", str(data), "--out", str(out)]
    assert main([*arguments, "--set", "train.max_steps=4"]) == 0
    tuned = Run.open(out)
    assert tuned.recipe.data.task == "classify"
    assert tuned.labels == ("bad", "good")
    assert tuned.card["base"] == "run"
    assert (out / "tokenizer.json").read_bytes() == (folder / "run" / "tokenizer.json").read_bytes()
    other = tmp_path / "odd.tsv"
    other.write_text("".join(f"odd\tx y {n}\nbad\tx z {n}\n" for n in range(30)))
    assert main([*arguments[:2], "--source", str(other), "--out", str(tmp_path / "no")]) == 2
    assert 'the label "odd" is unknown' in capsys.readouterr().err


def test_the_encoder_learns_too_and_several_labels_can_be_given(tmp_path):
    chance, lines = random.Random(3), []
    for place in range(240):
        labels = [name for name, bit in (("praise", 1), ("time", 2)) if place & bit]
        words = [*review(place & 1 > 0, chance).split(), *(["yesterday"] if place & 2 else [])]
        lines.append(json.dumps({"labels": labels, "text": " ".join(words)}))
    (tmp_path / "data.jsonl").write_text("\n".join(lines) + "\n")
    settings = {
        "model": {
            "arch": "transformer-classifier",
            "encoder_layers": 1,
            "width": 16,
            "heads": 2,
            "ffn_width": 32,
            "dropout": 0.1,
        },
        "train": {
            "max_steps": 120,
            "batch_tokens": 512,
            "learning_rate": 0.01,
            "validate_every": 30,
            "ema_decay": 0.9,
            "regularization_warmup": 0,
        },
    }
    classifier = regard.train(tmp_path / "data.jsonl", task="classify", out=tmp_path / "run", settings=settings)
    run = Run.open(tmp_path / "run")
    assert run.recipe.task.multi_label
    assert run.recipe.train.metric == "f1"
    assert run.card["scores"]["test"]["f1"] > 0.8
    praise, neither = classifier.classify(["A superb film yesterday.", "It was dull."], explain=True)
    assert set(praise.labels) == {"praise", "time"}
    assert neither.labels == ()
    assert neither.label == ""
    assert sum(sentence.weight for sentence in praise.sentences) == pytest.approx(1.0, abs=1e-5)


def test_a_rare_label_stays_with_the_training_documents(tmp_path):
    lines = [f"common\tword number {place}" for place in range(60)] + ["rare\tquite another text"]
    lines += ["other\tsomething else altogether"]
    (tmp_path / "data.tsv").write_text("\n".join(lines))
    for seed in range(20):
        data = {"task": "classify", "train": [{"source": str(tmp_path / "data.tsv")}]}
        documents = read_examples(make_recipe({"data": data, "train": {"seed": seed}}))
        assert documents.labels == ("common", "other", "rare")
        assert len(documents) + sum(map(len, documents.parts.held_out.values())) == 62


def test_a_damaged_label_file_is_told(folder, tmp_path, capsys):
    shutil.copytree(folder / "run", tmp_path / "run")
    (tmp_path / "run" / "labels.json").write_text("{")
    assert main(["classify", str(tmp_path / "run"), str(folder / "train.tsv")]) == 2
    assert "labels.json: damaged or changed" in capsys.readouterr().err
    assert main(["verify", str(tmp_path / "run"), "--accept"]) == 0
    assert main(["classify", str(tmp_path / "run"), str(folder / "train.tsv")]) == 2
    assert "labels.json: cannot read the labels" in capsys.readouterr().err
