"""Captions as a task: training, commands, languages, scores of given captions, attention, and what is refused."""

from __future__ import annotations

import json
import shutil
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.cli import main
from regard.config import Corpus
from regard.data.pictures import PictureSource
from regard.errors import CorpusError, RunError
from regard.tasks.caption.data import Captioned, group_captions, read_captions
from regard.tasks.caption.training import TRAINING
from tests.small_pictures import train_arguments, write_pictures


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures, and a run that describes them in English and German."""
    folder = tmp_path_factory.mktemp("pictures")
    languages = 'caption.languages=["en","de"]'
    few = ("train.max_steps=90", "train.validate_every=45")
    assert main(train_arguments(folder, folder / "run", languages, *few)) == 0
    return folder


@pytest.fixture(scope="module")
def captioner(folder: Path) -> regard.Captioner:
    return regard.load(folder / "run")


def test_it_learns(folder: Path) -> None:
    card = json.loads((folder / "run" / "card.json").read_text())
    assert card["languages"] == ["en", "de"]
    assert card["captions"] == {"train": 192, "valid": 24, "test": 24}
    assert card["pictures"]["count"] == 120
    test = card["scores"]["test"]
    assert test["pictures"] == 12
    assert test["captions"] == 24
    assert test["chrf"] > 45
    assert test["by_language"].keys() == {"en", "de"}
    assert test["cider"] == pytest.approx(sum(one["cider"] for one in test["by_language"].values()) / 2)
    assert test["recall_10"] >= test["recall_5"] >= test["recall_1"]


def test_captions_in_two_languages(folder: Path, captioner: regard.Captioner) -> None:
    picture = folder / "images" / "0.png"  # red, top left
    [english] = captioner.caption(picture, nbest=2)
    [german] = captioner.caption([str(picture)], language="de")
    assert english.text.startswith("a ")
    assert "square" in english.text
    assert german.text.startswith("ein Quadrat")
    assert (english.language, german.language) == ("en", "de")
    assert not {token for token in english.tokens if token.startswith("<")}
    assert len(english.alternatives) == 1
    assert english.alternatives[0].score <= english.score
    assert json.loads(json.dumps(english.as_dict()))["alternatives"][0]["text"] == english.alternatives[0].text
    with pytest.raises(RunError, match='does not know the language "fr"; it knows en, de'):
        captioner.caption(picture, language="fr")


def test_a_picture_is_a_path_bytes_or_pixels(folder: Path, captioner: regard.Captioner) -> None:
    path = folder / "images" / "4.png"
    pixels = np.asarray(Image.open(path))
    found = captioner.caption([path, path.read_bytes(), pixels])
    assert found[0] == found[1] == found[2]
    others = [folder / "images" / f"{number}.png" for number in range(5)]
    assert captioner.caption(others)[4].text == found[0].text  # alone or in a batch


def test_scores_are_those_of_the_search(folder: Path, captioner: regard.Captioner) -> None:
    picture = folder / "images" / "1.png"
    for language in captioner.languages:
        [found] = captioner.caption(picture, language=language, length_penalty=1.0)
        own, other = captioner.score(picture, [found.text, "square square"], language)
        assert own == pytest.approx(found.score, abs=0.01)
        assert own > other
    assert captioner.score(picture, []) == []
    pixels = captioner.read([picture, folder / "images" / "2.png"])
    texts = ["a red square, top left", "a blue"]
    pairs_NM = captioner.score_pairs(pixels, texts)
    assert pairs_NM[0].tolist() == pytest.approx(captioner.score(picture, texts), abs=1e-4)


def test_attention_over_the_grid(folder: Path, captioner: regard.Captioner) -> None:
    seen = captioner.look(folder / "images" / "0.png", "a red square")
    count = len(seen.tokens)
    assert seen.maps.shape == (count, 4, 4)
    assert torch.allclose(seen.maps.sum((1, 2)), torch.ones(count), atol=1e-5)
    assert [layer.shape for layer in seen.layers.values()] == [(2, count, 4, 4)]
    assert seen.tokens[-1] == "</s>"
    assert "".join(seen.text[slice(*span)] for span in seen.spans) == "aredsquare"
    own = captioner.look(folder / "images" / "0.png", language="de")
    assert own.text == captioner.caption(folder / "images" / "0.png", language="de")[0].text
    assert len(json.loads(json.dumps(own.as_dict()))["maps"]) == len(own.tokens)


def test_commands(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, picture = str(folder / "run"), str(folder / "images" / "0.png")
    assert main(["caption", run, picture]) == 0
    assert capsys.readouterr().out.startswith("a ")
    with zipfile.ZipFile(tmp_path / "some.zip", "w") as packed:
        for number in range(3):
            packed.write(folder / "images" / f"{number}.png", f"some/{number}.png")
    assert main(["caption", run, str(tmp_path / "some.zip"), "--json", "--language", "de", "--nbest", "2"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["picture"] for row in rows] == [f"some/{number}.png" for number in range(3)]
    assert all(row["language"] == "de" and len(row["alternatives"]) == 1 for row in rows)
    few = tmp_path / "few.tsv"
    few.write_text("picture\tcaption\n0.png\ta red square, top left\n0.png\ta square\n1.png\ta blue square, top left\n")
    assert main(["evaluate", run, "--source", str(few), "--language", "en", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert (scores["pictures"], scores["captions"]) == (2, 2)
    assert scores.keys() >= {"chrf", "bleu", "cider", "recall_1", "recall_5", "recall_10", "signatures"}
    assert main(["evaluate", run, "--source", str(folder / "captions.tsv"), "--images", str(folder / "images")]) == 0
    assert capsys.readouterr().out.splitlines()[0].split("\t") == ["", "on 120 pictures", "en", "de"]


def test_fine_tuning_keeps_the_vocabulary_and_compares(folder: Path, tmp_path: Path) -> None:
    more = ["--set", "train.max_steps=2", "--set", "train.validate_every=2"]
    data = [*more, "--source", str(folder / "captions.tsv"), "--out", str(tmp_path / "more"), "--force"]
    assert main(["finetune", str(folder / "run"), *data]) == 0
    card = json.loads((tmp_path / "more" / "card.json").read_text())
    assert card["comparison"]["score"] == "chrf"
    assert card["comparison"]["examples"] == 24
    kept = TRAINING.from_records(regard.run.Run.open(tmp_path / "more").held_out_records())
    assert kept.gallery.pixels([kept.examples[0].picture]).shape == (1, 3, 16, 16)


def test_changed_pictures_stop_a_run_that_builds_its_data_again(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pictures(tmp_path, 60)
    few = ("train.max_steps=2", "train.validate_every=2")
    assert main(train_arguments(tmp_path, tmp_path / "run", *few)) == 0
    again = ["resume", str(tmp_path / "run"), "--set", "train.max_steps=4"]
    assert main(again) == 0  # the store was removed and is made again
    Image.new("RGB", (16, 16), "black").save(tmp_path / "images" / "0.png")
    assert main([*again[:-1], "train.max_steps=6"]) == 2
    assert "the pictures have changed since" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------------------------
# Lists


def test_lists_of_captions(folder: Path, tmp_path: Path) -> None:
    def read(content: str, name: str = "list.tsv", *wanted: str, assumed: str = "") -> list[Captioned]:
        (tmp_path / name).write_text(content, encoding="utf-8")
        with PictureSource(folder / "images") as source:
            return read_captions(Corpus(str(tmp_path / name)), source, wanted, assumed)

    assert read("0.png\tone\n0.png\ttwo\n") == [Captioned("0.png", "one"), Captioned("0.png", "two")]
    assert read("picture\ten\tde\n1.png\ta\t\n2.png\tb\tc\n", "list.tsv", "de") == [Captioned("2.png", "c", "de")]
    assert read("picture\tlang\tcaption\n1.png\tfr\tun\n") == [Captioned("1.png", "un", "fr")]
    listed = json.dumps({"image": "3.png", "captions": ["one", "two"]}) + "\n"
    assert read(listed, "list.jsonl", assumed="en") == [Captioned("3.png", text, "en") for text in ("one", "two")]
    found = read("0.png\tone\n1.png\tx\n./0.png\ttwo\n")
    assert [one.references for one in group_captions(found)] == [("one", "two"), ("x",)]
    for content, problem in (
        ("picture\tcaption\n0.png\t\n", "list.tsv: there is no caption in this list; a list has the columns"),
        ("picture\tlabel\n0.png\tx\n", "list.tsv:2: there is no caption in this row"),
    ):
        with pytest.raises(CorpusError, match=problem):
            read(content)
    with pytest.raises(CorpusError, match='there are no captions in the language "de"; it has en'):
        read("picture\ten\n0.png\tx\n", "list.tsv", "de")


# ---------------------------------------------------------------------------------------------------------------------
# What is refused, through the command line


def huge() -> bytes:
    """A PNG file of 20,000 x 20,000 pixels without any of them."""
    parts = [(b"IHDR", struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(b""))]
    chunks = [
        struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data)) for tag, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"This is text.", "not a picture in a known format"),
        (huge(), "more than 128,000,000 pixels are too many (at most 64,000,000); make the picture smaller"),
        (b"\x89PNG\r\n\x1a\n", "not a picture"),
        (None, 'there is no picture "5.png" in'),
    ],
)
def test_a_bad_picture_stops_training_in_one_line_and_nothing_is_left(
    tmp_path: Path, content: bytes | None, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pictures(tmp_path, 60)
    bad = tmp_path / "images" / "5.png"
    bad.unlink() if content is None else bad.write_bytes(content)
    assert main(train_arguments(tmp_path, tmp_path / "run", "train.max_steps=2")) == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("regard: ")]
    assert problem in line
    assert "5.png" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("mode", "kind"), [("CMYK", "JPEG"), ("RGBA", "PNG"), ("L", "PNG"), ("P", "GIF"), ("I;16", "PNG")]
)
def test_pictures_of_every_kind_are_described(
    folder: Path, tmp_path: Path, mode: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for size in ((1, 1), (300, 5)):
        Image.new(mode, size).save(tmp_path / "picture", kind)
        assert main(["caption", str(folder / "run"), str(tmp_path / "picture")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["caption", "RUN", "missing.png"], "missing.png"),
        (["caption", "RUN", "RUN/recipe.toml"], "not a picture in a known format"),
        (["caption", "RUN", "IMAGES/0.png", "--language", "xx"], 'does not know the language "xx"; it knows en, de'),
        (["caption", "RUN", "IMAGES/0.png", "--nbest", "9"], "nbest = 9 needs search.beam_size of at least 9"),
        (["caption", "RUN", "IMAGES/0.png", "--replace-unknown"], "search.replace_unknown needs a source text"),
        (["evaluate", "RUN", "--source", "RUN/recipe.toml"], "rows cannot be read from this format"),
        (["evaluate", "RUN", "--source", "LIST", "--images", "nowhere"], "nowhere: no such folder or ZIP file"),
        (["translate", "RUN", "a"], 'describes pictures; use "regard caption'),
        (["train", "--task", "caption", "LIST"], "pictures.images is empty: name the folder or ZIP file"),
        (["train", "--task", "caption", "LIST", "--images", "IMAGES", "--arch", "convs2s"], "reads only tokens"),
        (["train", "--task", "caption", "LIST", "--images", "IMAGES", "--arch", "han"], "is not for data.task"),
        (
            ["train", "--task", "caption", "LIST", "--images", "IMAGES", "--set", 'caption.languages=["fr"]'],
            'there are no captions in the language "fr"; it has de, en',
        ),
        (["train", "--task", "language-model", "LIST", "--images", "IMAGES"], "[pictures] is for data.task = "),
    ],
)
def test_bad_use_is_one_line(folder: Path, words: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    places = {"RUN": folder / "run", "IMAGES": folder / "images", "LIST": folder / "captions.tsv"}
    for name, path in places.items():
        words = [word.replace(name, str(path)) for word in words]
    assert main(words) == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("regard: ")]
    assert problem in line


def test_a_run_whose_pictures_have_another_size_joins_no_ensemble(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "run", tmp_path / "other")
    recipe = tmp_path / "other" / "recipe.toml"
    text = recipe.read_text()
    (tmp_path / "other" / "checksums.json").unlink(missing_ok=True)
    assert [one.text for one in regard.load(folder / "run", tmp_path / "other").caption(folder / "images" / "0.png")]
    recipe.write_text(text.replace("patch_size = 4", "patch_size = 8"))
    with pytest.raises(RunError):
        regard.load(folder / "run", tmp_path / "other")
