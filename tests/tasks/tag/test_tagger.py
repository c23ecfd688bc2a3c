"""A small tagger from file to report, and what its commands say."""

import gzip
import io
import json
import random
import sys

import pytest

import regard
from regard.cli import main
from regard.config import Corpus
from regard.run import Run
from regard.tasks.tag.conll import TaggedSentence, read_tagged, read_words, write_conll
from regard.tasks.tag.spans import rewrite
from regard.tasks.tag.tagger import Tagger
from tests.tagged import chunks, train_arguments, write_chunks

STEPS = "train.max_steps=60"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A trained run and its data."""
    folder = tmp_path_factory.mktemp("chunks")
    data = write_chunks(folder / "train.txt", 300)
    write_chunks(folder / "test.txt", 40, seed=2)
    assert main([*train_arguments(data, folder / "run", STEPS), "--test", str(folder / "test.txt")]) == 0
    return folder


@pytest.fixture(scope="module")
def tagger(folder):
    return regard.load(folder / "run")


def test_the_run_folder_is_complete(folder):
    names = {path.name for path in (folder / "run").iterdir() if not path.name.startswith(".")}
    assert names == {
        "recipe.toml", "tokenizer.json", "labels.json", "weights.safetensors", "metrics.jsonl", "card.json",
        "report.html", "held-out.jsonl", "checkpoints", "checksums.json",
    }  # fmt: skip
    run = Run.open(folder / "run")
    assert run.labels == ("B-NP", "E-NP", "I-NP", "O", "S-ADVP", "S-VP")
    card = run.card
    assert card["task"] == "tag"
    assert card["scheme"] == "BIO"
    assert card["sentences"]["test"] == 40
    assert sum(card["labels"].values()) == card["words"]
    assert set(card["labels"]) == {"B-NP", "I-NP", "O", "B-ADVP", "B-VP"}  # as the file has them
    assert card["clitics"] == []
    assert set(card["scores"]) == {"valid", "test"}
    assert card["training"]["flops"] > 0
    assert {choice["name"] for choice in card["plan"]} >= {"model.arch", "tokenizer.kind", "train.metric"}
    assert "[NP " in (folder / "run" / "report.html").read_text()


def test_held_out_sentences_can_be_read_back(folder):
    test = [(list(one.tokens), list(one.tags)) for one in read_tagged(Corpus(str(folder / "test.txt")))]
    kept = [(one["tokens"], one["tags"]) for one in Run.open(folder / "run").held_out_records()]
    assert len(kept) == 40
    assert kept == test


def test_it_learns_the_chunks(folder, tagger):
    assert Run.open(folder / "run").card["scores"]["test"]["span_f1"] >= 0.98
    found = tagger.score(list(read_tagged(Corpus(str(folder / "test.txt")))))
    assert found.span_f1 == pytest.approx(Run.open(folder / "run").card["scores"]["test"]["span_f1"])
    assert found.by_label["NP"]["count"] == 80
    assert found.sentences == 40


def test_a_tagged_sentence_knows_its_spans(tagger):
    assert isinstance(tagger, Tagger)
    [tagged] = tagger.tag("the old  dog sees a bird.")
    assert tagged.tokens == ("the", "old", "dog", "sees", "a", "bird", ".")
    assert tagged.tags == ("B-NP", "I-NP", "I-NP", "B-VP", "B-NP", "I-NP", "O")
    assert [(span.type, span.text) for span in tagged.spans] == [
        ("NP", "the old  dog"),
        ("VP", "sees"),
        ("NP", "a bird"),
    ]
    first = tagged.spans[0]
    assert (first.start, first.end, first.first, first.last) == (0, 12, 0, 3)
    assert first.probability == min(tagged.probabilities[:3])
    made = json.loads(json.dumps(tagged.as_dict()))
    assert made["spans"][2]["text"] == "a bird"
    assert "influence" not in made


def test_sentences_come_in_order_and_do_not_depend_on_their_neighbours(tagger):
    texts = ["the dog sees a cat .", "", "   ", "🦓 猫は好き。 пример", ["a", "dog"], "x" * 300]
    together = tagger.tag(texts)
    assert [one.text for one in together] == [text if isinstance(text, str) else "a dog" for text in texts]
    for text, tagged in zip(texts, together, strict=True):
        [alone] = tagger.tag([text])
        assert alone.tags == tagged.tags
        assert alone.probabilities == pytest.approx(tagged.probabilities, abs=1e-6)
        assert len(tagged.tags) == len(tagged.tokens) == len(tagged.probabilities)
        assert all(0 < probability <= 1 + 1e-9 for probability in tagged.probabilities)
    assert together[1].tokens == together[2].tokens == ()
    assert tagger.tag([]) == []


def test_a_very_long_line_is_read_in_stretches(tagger):
    [short] = tagger.tag([["the", "dog", "sees", "a", "cat", "."]])
    [tagged] = tagger.tag(["the dog sees a cat . " * 3334])
    assert len(tagged.tokens) == 20_004
    assert len(tagged.tags) == 20_004
    right = sum(tagged.tags[place] == short.tags[place % 6] for place in range(20_004))
    assert right / 20_004 > 0.95


def test_explaining_says_which_words_mattered(tagger):
    [plain], [explained] = tagger.tag(["the dog sees a cat ."]), tagger.tag(["the dog sees a cat ."], explain=True)
    assert plain.top_labels is None
    assert explained.tags == plain.tags
    for tag, probability, top_labels in zip(explained.tags, explained.probabilities, explained.top_labels, strict=True):
        assert top_labels[tag] == pytest.approx(probability)
        assert list(top_labels.values()) == sorted(top_labels.values(), reverse=True)
    assert len(explained.influence) == len(explained.influence[0]) == 6
    sees = explained.influence[2]
    assert max(range(6), key=sees.__getitem__) == 2  # what decides that a word is a verb is the word
    [empty] = tagger.tag([""], explain=True)
    assert empty.as_dict()["tokens"] == []
    [long] = tagger.tag(["dog " * 101], explain=True)
    assert long.influence is None


# ---------------------------------------------------------------------------------------------------------------------
# Commands


def feed(monkeypatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_the_command_marks_spans(folder, tmp_path, capsys, monkeypatch):
    file = tmp_path / "in.txt"
    file.write_text("the dog sees a cat.\n\na bird likes the tree slowly.\n")
    assert main(["tag", str(folder / "run"), str(file)]) == 0
    assert capsys.readouterr().out == (
        "[NP the dog ] [VP sees ] [NP a cat ] .\n\n[NP a bird ] [VP likes ] [NP the tree ] [ADVP slowly ] .\n"
    )
    feed(monkeypatch, "the dog sees \U0001f600\n\xff".encode("latin1", "ignore") + b"the \xff\n")
    assert main(["tag", str(folder / "run"), "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["tags"][:3] == ["B-NP", "I-NP", "B-VP"]
    feed(monkeypatch, b"")
    assert main(["tag", str(folder / "run")]) == 0
    assert capsys.readouterr().out == ""


def test_of_an_empty_file_nothing_is_made(folder, tmp_path, capsys):
    """As `regard translate` does it. There is nothing to score, though."""
    for name in ("a.txt", "a.conll", "a.jsonl", "a.txt.gz"):
        (tmp_path / name).write_bytes(gzip.compress(b"") if name.endswith(".gz") else b"")
        assert main(["tag", str(folder / "run"), str(tmp_path / name)]) == 0
        assert capsys.readouterr() == ("", "")
    (tmp_path / "a.conll").touch()
    assert main(["tag", str(folder / "run"), str(tmp_path / "a.conll"), "--score"]) == 2
    assert "the file is empty" in capsys.readouterr().err


def test_conll_in_and_out(folder, tmp_path, capsys):
    """What is written can be scored, and is all right."""
    assert (
        main(
            [
                "tag",
                str(folder / "run"),
                str(folder / "test.txt"),
                "--input-format",
                "conll",
                "--output-format",
                "conll",
            ]
        )
        == 0
    )
    written = capsys.readouterr().out
    (tmp_path / "out.conll").write_text(written)
    assert main(["tag", str(folder / "run"), str(tmp_path / "out.conll"), "--score", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["span_f1"] == 1.0
    assert found["sentences"] == 40
    assert main(["tag", str(folder / "run"), str(tmp_path / "out.conll"), "--output-format", "conll"]) == 0
    assert capsys.readouterr().out == written


def test_conll_and_scores_through_a_pipe(folder, capsys, monkeypatch):
    content = (folder / "test.txt").read_bytes()
    for options in (["--input-format", "conll", "--output-format", "conll"], ["--score", "--json"]):
        assert main(["tag", str(folder / "run"), str(folder / "test.txt"), *options]) == 0
        right = capsys.readouterr().out
        feed(monkeypatch, content)
        assert main(["tag", str(folder / "run"), *options]) == 0
        assert capsys.readouterr().out == right
    feed(monkeypatch, b"the B-NP\ndog\n")
    assert main(["tag", str(folder / "run"), "--score"]) == 2
    assert "standard input:2: 1 column in this row" in capsys.readouterr().err
    feed(monkeypatch, b"")
    assert main(["tag", str(folder / "run"), "--score"]) == 2
    assert "standard input: no words found" in capsys.readouterr().err


def test_files_of_words_are_read_as_such(folder, tmp_path, capsys):
    file = tmp_path / "in.jsonl"
    file.write_text('{"tokens": ["the", "dog", "sees"], "tags": ["O", "O", "O"]}\n{"tokens": ["a", "cat"]}\n')
    assert main(["tag", str(folder / "run"), str(file)]) == 0
    assert capsys.readouterr().out == "[NP the dog ] [VP sees ]\n[NP a cat ]\n"
    assert main(["tag", str(folder / "run"), str(folder / "test.txt")]) == 0
    assert "test.txt looks like CoNLL but is read as text; --input-format conll" in capsys.readouterr().err
    assert main(["tag", str(folder / "run"), str(folder / "test.txt"), "--input-format", "conll"]) == 0
    assert capsys.readouterr().err == ""
    (tmp_path / "in.txt").write_text("the dog sees a cat.\n\nthe cat sees.\n\nthe bird.\n")
    assert main(["tag", str(folder / "run"), str(tmp_path / "in.txt")]) == 0
    assert capsys.readouterr().err == ""


def test_text_is_divided_as_the_training_data_is(tmp_path, capsys):
    """Also in a run that is finetuned, or that knows nothing of it."""
    data = tmp_path / "data.txt"
    data.write_text("".join(f"He{n} B-NP\ndid B-VP\nn't I-VP\nwait I-VP\n\n" for n in range(40)))
    assert main(train_arguments(data, tmp_path / "run", "train.max_steps=2")) == 0
    run = Run.open(tmp_path / "run")
    assert run.card["clitics"] == ["n't"]
    assert main(["info", str(tmp_path / "run")]) == 0
    assert "labels\tB-NP 32  B-VP 32  I-VP 64\n" in (shown := capsys.readouterr().out)
    assert "clitics\tn't\n" in shown
    tagger = regard.load(tmp_path / "run")
    text = "Mr. Doe didn't pay $1.8, they'll say."
    [tagged] = tagger.tag([text])
    assert " ".join(tagged.tokens) == "Mr. Doe did n't pay $ 1.8 , they'll say ."
    assert all(text[span.start : span.end] == span.text for span in tagged.spans)
    more = write_chunks(tmp_path / "more.txt", 60)
    more.write_text(data.read_text().replace("n't", "not"))
    arguments = ["finetune", str(tmp_path / "run"), "--source", str(more), "--out", str(tmp_path / "tuned")]
    assert main([*arguments, "--set", "train.max_steps=2"]) == 0
    assert regard.load(tmp_path / "tuned").clitics == ("n't",)
    run.write_card({key: value for key, value in run.card.items() if key != "clitics"})
    [tagged] = regard.load(tmp_path / "run").tag(["He didn't"])
    assert tagged.tokens == ("He", "didn't")


def test_words_may_be_divided_already(folder, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("the dog's sees")
    assert (
        main(
            [
                "tag",
                str(folder / "run"),
                str(tmp_path / "in.txt"),
                "--output-format",
                "conll",
                "--input-format",
                "tokens",
            ]
        )
        == 0
    )
    assert [line.split(" ")[0] for line in capsys.readouterr().out.splitlines()] == ["the", "dog's", "sees", ""]


def test_the_command_scores_and_explains(folder, tmp_path, capsys):
    assert main(["tag", str(folder / "run"), str(folder / "test.txt"), "--score"]) == 0
    shown = capsys.readouterr().out
    assert "span F1" in shown
    assert "ADVP" in shown
    (tmp_path / "in.txt").write_text("the dog sees a cat.\n")
    assert main(["tag", str(folder / "run"), str(tmp_path / "in.txt"), "--explain"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("[NP the dog ] [VP sees ] [NP a cat ] .\n")  # as without --explain
    assert "because of" in shown
    assert "B-VP" in shown


def test_inspect_writes_a_page(folder, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["inspect", str(folder / "run"), "the dog sees a cat", "--out", str(page)]) == 0
    assert "B-VP" in page.read_text()
    assert capsys.readouterr().out.startswith("the dog sees a cat\n[NP the dog ] [VP sees ] [NP a cat ]\n")
    (tmp_path / "in.conll").write_text("the O\ndog O\n\na O\n")
    for file, first in ((tmp_path / "in.conll", "the dog\n"), (folder / "test.txt", None)):
        assert main(["inspect", str(folder / "run"), str(file), "--out", str(page)]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith(first or " ".join(next(iter(read_words(folder / "test.txt")))) + "\n")
    (tmp_path / "in.conll").write_text("\n\n")
    assert main(["inspect", str(folder / "run"), str(tmp_path / "in.conll"), "--out", str(page)]) == 2
    assert "in.conll: no words found" in capsys.readouterr().err
    assert main(["inspect", str(folder / "run"), "the dog sees a cat", "--json"]) == 0
    data = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert data["tagged"]["tags"][2] == "B-VP"
    assert data["attention"] is None


def test_info_shows_the_scores(folder, capsys):
    assert main(["info", str(folder / "run")]) == 0
    assert "span F1" in capsys.readouterr().out
    for arch in ("bigru-crf", "transformer-crf"):
        assert main(["info", "--arch", arch]) == 0
        assert "FLOP per word" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["translate", "{run}", "{data}"], '{run} tags words or frames; use "regard tag {run}"'),
        (["classify", "{run}", "{data}"], "tags words"),
        (["heads", "{run}"], "tags words"),
        (["inspect", "{run}", "--measure"], "is a run of the task tag: leave out --measure"),
        (["inspect", "{run}", " "], "there is no text to inspect"),
        (["tag", "{run}", "{data}.none"], "no such file"),
        (
            ["tag", "{run}", "{data}", "--output-format", "conll", "--json"],
            "--json and --output-format conll are two output formats; choose one",
        ),
        (["tag", "{run}", "{data}", "--score", "--explain"], "leave out --explain"),
        (["tag", "{run}", "{data}", "--output-format", "conll", "--explain"], "has no explanations"),
        (["tag", "{run}/none"], "there is no such run folder"),
    ],
)
def test_what_does_not_fit_is_one_line(folder, capsys, arguments, message):
    names = {"run": folder / "run", "data": folder / "train.txt"}
    assert main([argument.format(**names) for argument in arguments]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.format(**names) in error


def test_files_that_cannot_be_scored(folder, tmp_path, capsys):
    (tmp_path / "odd.txt").write_text("He PRON\n")
    assert main(["tag", str(folder / "run"), str(tmp_path / "odd.txt"), "--score"]) == 2
    assert "none of the labels in the data is known to this run" in capsys.readouterr().err
    (tmp_path / "odd.txt").write_bytes(b"He B-NP\n\xff O\n")
    assert main(["tag", str(folder / "run"), str(tmp_path / "odd.txt"), "--score"]) == 2
    assert "odd.txt:2: not UTF-8" in capsys.readouterr().err
    (tmp_path / "new.txt").write_text("the B-NP\ndog I-NP\n, B-NEW\n")
    assert main(["tag", str(folder / "run"), str(tmp_path / "new.txt"), "--score", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["by_label"]["NEW"]["recall"] == 0.0


# ---------------------------------------------------------------------------------------------------------------------
# Training


BAD_DATA = {
    "one label": ("".join(f"He{n} X\n\n" for n in range(30)), "at least two labels"),
    "few": ("He A\nis B\n\n", "1 sentence is too few"),
    "no columns": ("He\n\n" * 30, "1 column in this row"),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data_is_one_line_and_leaves_nothing(tmp_path, capsys, case):
    text, message = BAD_DATA[case]
    (tmp_path / "data.txt").write_text(text)
    assert main(["train", "--task", "tag", str(tmp_path / "data.txt"), "--out", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.arch=transformer-tiny", 'is not for data.task = "tag"; choose from bigru-crf, transformer-crf'),
        ("train.metric=bleu", 'is not a metric of data.task = "tag"; choose from accuracy, f1, loss'),
        ("train.r_drop=1.0", "is not supported"),
        ("tokenizer.kind=bpe tokenizer.subword_regularization=0.1", "is not supported"),
        ("tag.scheme=XY", "cannot be"),
        ("tag.column=9", "not at least 9"),
        ("tag.max_words=2", "must be at least 8"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path, capsys, setting, message):
    data = write_chunks(tmp_path / "data.txt", 40)
    arguments = ["train", "--task", "tag", str(data), "--out", str(tmp_path / "run")]
    assert main(arguments + [part for one in setting.split() for part in ("--set", one)]) == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]


def test_a_tagger_is_no_translator(tmp_path, capsys):
    (tmp_path / "pairs.tsv").write_text("".join(f"word {n} here\tWort {n} hier\n" for n in range(60)))
    arguments = [
        "train",
        "--source",
        str(tmp_path / "pairs.tsv"),
        "--arch",
        "bigru-crf",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(arguments) == 2
    assert 'is not for data.task = "translate"; choose from' in capsys.readouterr().err.strip().splitlines()[-1]


def test_interrupted_and_resumed_equals_never_interrupted(folder, tmp_path):
    run = tmp_path / "run"
    data = folder / "train.txt"
    steady = ["train.cooldown=0", "train.patience=0"]
    assert main(train_arguments(data, run, "train.max_steps=10", *steady)) == 0
    assert main(["resume", str(run), "--set", "train.max_steps=15"]) == 0
    assert main(train_arguments(data, tmp_path / "whole", "train.max_steps=15", *steady)) == 0
    last = [sorted((one / "checkpoints").glob("*.safetensors"))[-1].read_bytes() for one in (run, tmp_path / "whole")]
    assert last[0] == last[1]


def test_finetuning_keeps_labels_and_vocabulary(folder, tmp_path, capsys):
    data, out = write_chunks(tmp_path / "more.txt", 60, seed=5), tmp_path / "tuned"
    arguments = ["finetune", str(folder / "run"), "--source", str(data), "--out", str(out)]
    assert main([*arguments, "--set", "train.max_steps=4"]) == 0
    tuned = Run.open(out)
    assert tuned.recipe.data.task == "tag"
    assert tuned.labels == Run.open(folder / "run").labels
    assert tuned.card["base"] == "run"
    other = tmp_path / "odd.txt"
    other.write_text("".join(f"he{n} B-ODD\nsees O\n\n" for n in range(30)))
    assert main([*arguments[:2], "--source", str(other), "--out", str(tmp_path / "no")]) == 2
    assert 'the label "B-ODD" is unknown' in capsys.readouterr().err


def test_the_encoder_learns_parts_of_speech_and_shows_its_attention(tmp_path, capsys):
    chance, names = random.Random(3), {"NP": "NOUN", "VP": "VERB", "ADVP": "ADV", "": "PUNCT"}
    lines = []
    for _ in range(300):
        pairs = [(word, names[tag.partition("-")[2]]) for word, tag in chunks(chance)]
        lines.append(json.dumps({"tokens": [word for word, _ in pairs], "tags": [tag for _, tag in pairs]}))
    (tmp_path / "data.jsonl").write_text("\n".join(lines) + "\n")
    small = {
        "char_embedding": 8,
        "char_cnn_width": 16,
        "word_hash_rows": 256,
        "embedding_width": 8,
        "width": 16,
        "ffn_width": 32,
        "dropout": 0.1,
    }
    settings = {
        "model": {"arch": "transformer-crf", "encoder_layers": 2, "heads": 2, **small},
        "train": {"max_steps": 80, "batch_tokens": 256, "warmup_steps": 5, "validate_every": 20, "ema_decay": 0.9},
    }
    tagger = regard.train(tmp_path / "data.jsonl", task="tag", out=tmp_path / "run", settings=settings)
    run = Run.open(tmp_path / "run")
    assert run.recipe.train.metric == "accuracy"
    assert run.card["scheme"] == "plain"
    assert run.card["scores"]["test"]["accuracy"] > 0.98
    [tagged] = tagger.tag(["the dog sees a cat slowly ."])
    assert tagged.tags == ("NOUN", "NOUN", "VERB", "NOUN", "NOUN", "ADV", "PUNCT")
    assert tagged.spans == ()
    assert main(["tag", str(tmp_path / "run"), str(tmp_path / "data.jsonl"), "--score"]) == 0
    assert "span F1" not in capsys.readouterr().out
    assert main(["inspect", str(tmp_path / "run"), "the dog sees a cat", "--json"]) == 0
    data = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [one["name"] for one in data["attention"]["maps"]] == ["encoder.0.self", "encoder.1.self"]
    assert len(data["attention"]["maps"][0]["heads"]) == 2


def test_schemes_are_learnt_soundly(tmp_path, capsys):
    """As BIOES, whatever the file has; stray labels are corrected and reported. Answers are in BIO, or as the file."""
    data = write_chunks(tmp_path / "bio.txt", 60)
    iob1 = tmp_path / "iob1.txt"
    iob1.write_text(data.read_text().replace("B-", "I-"))
    stray = tmp_path / "stray.txt"
    stray.write_text(data.read_text().replace("B-VP", "I-VP"))
    bioes = tmp_path / "bioes.txt"
    sentences = [TaggedSentence(one.tokens, rewrite(one.tags, "BIOES")) for one in read_tagged(Corpus(str(data)))]
    bioes.write_text("\n".join(write_conll(sentences)))
    for file, told, answers in (
        (data, "5 labels that mark spans (BIO)", "BIO"),
        (iob1, "4 labels that mark spans (IOB1)", "BIO"),
        (stray, "broke its rules and were corrected", "BIO"),
        (bioes, "that mark spans (BIOES)", "BIOES"),
    ):
        out = tmp_path / f"run-{file.stem}"
        assert main(train_arguments(file, out, "train.max_steps=2")) == 0
        assert told in capsys.readouterr().err
        assert set(Run.open(out).labels) == {"S-ADVP", "B-NP", "S-VP", "I-NP", "E-NP", "O"}
        tagger = regard.load(out)
        assert tagger.scheme == answers
        assert ("S-VP" in tagger.labels) == (answers == "BIOES")
