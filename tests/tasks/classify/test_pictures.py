"""Classification of pictures: data in lists, folders and ZIP files; a trained run; commands; bad input."""

from __future__ import annotations

import base64
import json
import random
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
from regard.analysis.attribution_methods import roll_out_pooling
from regard.cli import main
from regard.config import Corpus
from regard.config.recipe import make_recipe
from regard.data.pictures import PictureSource
from regard.layers.hooks import trace
from regard.run import Run
from regard.tasks.api import FieldError
from regard.tasks.classify.api import Request, answer, facts
from regard.tasks.classify.inputs import kind_of, kind_of_run
from regard.tasks.classify.pictures.data import LabeledPicture, read_examples, read_labeled
from regard.tasks.classify.plan import make_picture_plan
from regard.tasks.pictures import PictureFacts
from regard.tasks.training import training_of_run
from tests.small_marks import MARKS, draw, rows, train_arguments, write_folder, write_list


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with "marks", and a run that was trained on it."""
    made = tmp_path_factory.mktemp("pictures")
    write_folder(made / "marks")
    assert main(train_arguments(made / "marks", made / "run", "train.max_steps=120")) == 0
    return made


@pytest.fixture(scope="module")
def classifier(folder):
    return regard.load(folder / "run")


def picture(folder: Path, mark: str, seed: int = 77) -> Path:
    path = folder / f"{mark}-{seed}.png"
    draw(mark, random.Random(seed)).save(path)
    return path


def recipe(source: Path, images: Path | str = "", **parts: Path):
    data = {"task": "classify", "train": [{"source": str(source)}]}
    data |= {part: [{"source": str(path)}] for part, path in parts.items()}
    return make_recipe({"data": data} | ({"pictures": {"images": str(images)}} if images else {}))


# ---------------------------------------------------------------------------------------------------------------------
# Data


def labels_of(path: Path, images: Path) -> dict[str, tuple[str, ...]]:
    with PictureSource(images) as source:
        return {one.picture: one.labels for one in read_labeled(Corpus(str(path)), source)}


def test_a_folder_a_zip_file_and_a_list_have_the_same_labels(folder, tmp_path):
    expected = {name: (label,) for label, name in rows(folder / "marks")}
    assert len(expected) == 240
    assert labels_of(folder / "marks", folder / "marks") == expected
    assert labels_of(write_list(tmp_path / "list.tsv", folder / "marks"), folder / "marks") == expected
    with zipfile.ZipFile(tmp_path / "marks.zip", "w") as archive:
        for name in expected:
            archive.write(folder / "marks" / name, name)
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.writestr("__MACOSX/marks/dot/._001.png", b"x")
        archive.writestr("marks/.DS_Store", b"x")
        for name in expected:
            archive.write(folder / "marks" / name, f"marks/{name}")
    assert labels_of(tmp_path / "marks.zip", tmp_path / "marks.zip") == expected
    packed = labels_of(tmp_path / "packed.zip", tmp_path / "packed.zip")
    assert packed == {f"marks/{name}": labels for name, labels in expected.items()}


def test_json_lines_may_have_several_labels_and_numbers(folder, tmp_path):
    names = [name for _, name in rows(folder / "marks")][:2]
    lines = [{"image": names[0], "labels": ["a", 3]}, {"image": names[1], "label": 7}, {"image": names[1], "label": 7}]
    (tmp_path / "list.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = labels_of(tmp_path / "list.jsonl", folder / "marks")
    assert found == {names[0]: ("a", "3"), names[1]: ("7",)}


def test_parts_in_folders_beside_each_other(tmp_path):
    write_folder(tmp_path / "data" / "train", 60, seed=1)
    write_folder(tmp_path / "data" / "valid", 12, seed=2)
    examples = read_examples(recipe(tmp_path / "data" / "train", valid=tmp_path / "data" / "valid"))
    assert len(examples) == 60
    assert examples.labels == MARKS
    assert {one.picture.split("/")[0] for one in examples.parts.held_out["valid"]} == {"valid"}
    assert next(iter(examples.parts.train())) == LabeledPicture(("across",), "train/across/000.png")


def test_the_kind_of_input_follows_from_the_data(folder, tmp_path):
    assert kind_of(recipe(folder / "marks")).__name__.endswith("pictures.data")
    assert kind_of(recipe(tmp_path / "a.tsv", "pictures.zip")).__name__.endswith("pictures.data")
    assert kind_of(recipe(tmp_path / "a.tsv")).__name__.endswith("documents")
    assert kind_of_run(Run.open(folder / "run")).__name__.endswith("pictures.data")


# ---------------------------------------------------------------------------------------------------------------------
# The plan


def test_the_plan_of_small_gray_pictures():
    facts = PictureFacts(1257, 8, 8, -0.4, 0.75, is_gray=True)
    plan = make_picture_plan(facts, 1257, {"data": {"task": "classify"}}, 10, 0.1, images="digits")
    chosen = {choice.name: choice.value for choice in plan}
    assert chosen["pictures.size"] == (8, 8)
    assert chosen["pictures.patch_size"] == 2
    assert chosen["pictures.channels"] == 1
    assert chosen["pictures.images"] == "digits"
    assert chosen["train.metric"] == "accuracy"
    assert not any(name.startswith("pictures.flip") for name in chosen)
    assert all(choice.reason for choice in plan)
    uneven = make_picture_plan(facts, 1257, {}, 10, 0.01)
    assert {"classify.class_weights", "train.metric"} <= {choice.name for choice in uneven}
    kept = make_picture_plan(facts, 1257, {"pictures": {"size": (16, 16)}, "train": {"batch_tokens": 99}}, 10, 0.1)
    assert not {"pictures.size", "train.batch_tokens"} & {
        choice.name for choice in kept if choice.name != "train.batch_tokens" or choice.value != 99
    }


# ---------------------------------------------------------------------------------------------------------------------
# A run


def test_the_run_describes_itself(folder):
    run = Run.open(folder / "run")
    assert run.labels == MARKS
    assert run.sizes == {
        "picture_channels": 1, "picture_height": 8, "picture_width": 8, "patch_size": 2, "convolutions": 2, "labels": 3,
    }  # fmt: skip
    card = run.card
    assert card["pictures"]["train"] == 192
    assert card["pictures"]["valid"] == card["pictures"]["test"] == 24
    assert card["scores"]["test"]["examples"] == 24
    assert run.recipe.pictures.images == str(folder / "marks")
    assert card["tuned"] == {}  # 24 pictures are too few
    report = (folder / "run" / "report.html").read_text()
    assert "data:image/png;base64," in report


def test_it_learns(folder, classifier):
    assert Run.open(folder / "run").card["scores"]["test"]["accuracy"] >= 0.9
    paths = [picture(folder, mark, seed) for mark in MARKS for seed in range(5)]
    given = [one.label for one in classifier.classify(paths)]
    assert sum(label == path.name.split("-")[0] for label, path in zip(given, paths, strict=True)) >= 14


def test_paths_contents_and_arrays_are_the_same_picture(folder, classifier):
    path = picture(folder, "dot")
    array = np.asarray(Image.open(path))
    found = [classifier.classify(given)[0] for given in (path, str(path), path.read_bytes(), array)]
    assert len({one.probability for one in found}) == 1
    assert [one.picture for one in found] == [str(path), str(path), "", ""]
    assert classifier.classify([]) == []


def test_explanations_sum_to_one_and_change_nothing(folder, classifier):
    path = picture(folder, "across")
    [plain], [explained] = classifier.classify([path]), classifier.classify([path], explain=True)
    assert plain.patches is None
    assert "patches" not in plain.as_dict()
    assert explained.probability == pytest.approx(plain.probability, abs=1e-5)
    made = json.loads(json.dumps(explained.as_dict()))
    for name in ("attention", "rollout"):
        weights = np.array(made["patches"][name])
        assert weights.shape == (4, 4)
        assert weights.min() >= 0
        assert weights.sum() == pytest.approx(1.0, abs=1e-4)


@torch.no_grad()
def test_rollout_is_the_product_of_mixed_attention(folder, classifier):
    batch = classifier.reader.batch(classifier.reader.encode([picture(folder, "down"), picture(folder, "dot")]))
    with trace(classifier.model) as tape:
        classifier.model(batch)
    pooled_BS = classifier.model.shading(tape, batch)[:, 0]
    found_BS = roll_out_pooling(tape, pooled_BS)
    layers = [tape[f"encoder.{layer}.self"].weights_BHTS.mean(1) for layer in range(2)]
    mixed = [(weights + torch.eye(16)) / 2 for weights in layers]
    assert torch.allclose(found_BS, (pooled_BS[:, None] @ mixed[1] @ mixed[0])[:, 0], atol=1e-6)
    del tape["encoder.0.self"], tape["encoder.1.self"]
    assert roll_out_pooling(tape, pooled_BS) is None


def test_held_out_pictures_can_be_scored_again(folder, classifier):
    run = Run.open(folder / "run")
    records = run.held_out_records()
    assert len(records) == 24
    assert all(record["png"].startswith("data:image/png;base64,") for record in records)
    examples = training_of_run(run).from_records(records)
    found = classifier.score(examples)
    assert found.accuracy == run.card["scores"]["test"]["accuracy"]


def test_a_published_run_names_no_folder_and_still_works(folder, tmp_path):
    assert main(["export", str(folder / "run"), "--to", "hub", "--out", str(tmp_path / "hub")]) == 0
    for name in ("recipe.toml", "card.json", "README.md"):
        assert str(folder) not in (tmp_path / "hub" / name).read_text(encoding="utf-8")
    [found] = regard.load(tmp_path / "hub").classify([picture(folder, "dot")])
    assert found.label == "dot"


def test_attributions_are_for_documents(folder, classifier):
    with pytest.raises(regard.RegardError, match="attributed only to tokens"):
        classifier.attribute(picture(folder, "dot"))


# ---------------------------------------------------------------------------------------------------------------------
# Commands


def test_the_command_labels_files_folders_and_zip_files(folder, tmp_path, capsys):
    paths = [str(picture(folder, mark)) for mark in MARKS]
    assert main(["classify", str(folder / "run"), *paths]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == paths
    assert [line[1] for line in lines] == list(MARKS)
    with zipfile.ZipFile(tmp_path / "some.zip", "w") as archive:
        archive.write(paths[0], "one.png")
        archive.writestr("read me.txt", b"text")
    assert main(["classify", str(folder / "run"), str(tmp_path / "some.zip"), "--json", "--explain"]) == 0
    [found] = map(json.loads, capsys.readouterr().out.splitlines())
    assert found["picture"] == "one.png"
    assert len(found["patches"]["rollout"]) == 4
    assert main(["classify", str(folder / "run"), paths[0], "--explain"]) == 0
    shown = capsys.readouterr().out
    assert "across" in shown
    assert "█" in shown


def test_the_command_evaluates_lists_and_folders(folder, tmp_path, capsys):
    for source, more in (
        (folder / "marks", []),
        (write_list(tmp_path / "list.tsv", folder / "marks"), ["--images", str(folder / "marks")]),
        (tmp_path / "list.tsv", []),  # the pictures of the training
    ):
        assert main(["evaluate", str(folder / "run"), "--source", str(source), "--json", *more]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["examples"] == 240
        assert found["accuracy"] > 0.9
    assert main(["evaluate", str(folder / "run"), "--source", str(folder / "marks")]) == 0
    assert "row: correct label" in capsys.readouterr().out


def test_inspect_writes_a_page(folder, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["inspect", str(folder / "run"), str(picture(folder, "dot")), "--out", str(page)]) == 0
    assert capsys.readouterr().out.startswith("dot (")
    assert "data:image/png;base64," in page.read_text()
    assert main(["inspect", str(folder / "run"), str(picture(folder, "dot")), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [layer["name"] for layer in found["layers"]] == ["encoder.0.self", "encoder.1.self"]
    assert np.array(found["layers"][0]["heads"]).shape == (2, 16, 16)


def test_fine_tuning_starts_from_the_run_and_is_compared_with_it(folder, tmp_path, capsys):
    write_folder(tmp_path / "more", 60, seed=9)
    few = ["--set", "train.max_steps=20", "--set", "train.validate_every=10"]
    assert main(["finetune", str(folder / "run"), "--source", str(tmp_path / "more"), "--out", str(tmp_path / "run"),
                 *few, "--force"]) == 0  # fmt: skip
    assert "before fine-tuning  on 24 examples" in capsys.readouterr().err
    run = Run.open(tmp_path / "run")
    assert run.card["comparison"]["examples"] == 24
    assert run.recipe.pictures.images == str(tmp_path / "more")


# ---------------------------------------------------------------------------------------------------------------------
# HTTP API


def test_the_api_takes_pictures_in_base64(folder, classifier):
    contents = [picture(folder, mark).read_bytes() for mark in MARKS]
    encoded = [base64.b64encode(content).decode() for content in contents]
    parts = Request(pictures=encoded, explain=True).split()
    found = answer(classifier, parts)
    assert [one["label"] for one in found] == list(MARKS)
    assert all(one["pixels"].startswith("data:image/png;base64,") for one in found)
    assert all(np.array(one["patches"]["rollout"]).shape == (4, 4) for one in found)
    [plain] = answer(classifier, Request(pictures=f"data:image/png;base64,{encoded[0]}").split())
    assert not {"pixels", "patches"} & plain.keys()
    assert parts[0].texts() == ("pictures", [])
    assert Request(q=["a", "b"]).split()[1].texts() == ("q", ["b"])
    assert facts(Run.open(folder / "run")) == {"picture_height": 8, "picture_width": 8}


def test_the_api_refuses_what_is_no_picture(folder, classifier):
    for request, message in (
        (Request(q="A text."), "q: this run classifies pictures; send them in the field pictures"),
        (Request(pictures=base64.b64encode(b"This is text.").decode()), "pictures: not a picture"),
        (Request(pictures=base64.b64encode(png_header(20_000, 20_000)).decode()), "pictures: .*(too many|at most)"),
        (Request(pictures=base64.b64encode(png_header(8, 8)).decode()), "pictures: a damaged picture"),
    ):
        with pytest.raises(FieldError, match=f"^{message}"):
            answer(classifier, request.split())
    for given in ({}, {"q": "a", "pictures": "b"}):
        with pytest.raises(FieldError, match="send texts"):
            Request(**given)


# ---------------------------------------------------------------------------------------------------------------------
# Bad input: one clear line


def png_header(width: int, height: int) -> bytes:
    """A PNG file of the given size without any pixels."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(b""))]
    body = [
        struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data)) for tag, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)


BAD_PICTURES = {
    "text": (b"This is text.", "not a picture in a known format"),
    "bomb": (png_header(20_000, 20_000), "too many"),
    "torn": (png_header(8, 8), "a damaged picture"),
    "empty": (b"", "the file is empty"),
}


def error_of(capsys) -> str:
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("regard: ")]
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize("case", BAD_PICTURES)
def test_a_bad_picture_is_one_line_from_every_command(folder, tmp_path, capsys, case):
    content, message = BAD_PICTURES[case]
    shutil.copytree(folder / "marks", tmp_path / "marks")
    bad = tmp_path / "marks" / "dot" / "bad.png"
    bad.write_bytes(content)
    for arguments in (
        ["classify", str(folder / "run"), str(bad)],
        ["inspect", str(folder / "run"), str(bad), "--json"],
        ["evaluate", str(folder / "run"), "--source", str(tmp_path / "marks")],
        train_arguments(tmp_path / "marks", tmp_path / "run", "pictures.size=[8,8]", "pictures.mean=0"),
    ):
        assert main(arguments) == 2
        error = error_of(capsys)
        assert message in error
        assert "bad.png" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("mode", ["CMYK", "RGBA", "LA", "1", "P", "I;16"])
def test_unusual_modes_and_sizes_are_read(folder, tmp_path, capsys, mode):
    for size in ((1, 1), (300, 2)):
        path = tmp_path / ("a.jpg" if mode == "CMYK" else "a.png")
        Image.new(mode, size).save(path)
        assert main(["classify", str(folder / "run"), str(path)]) == 0
        assert capsys.readouterr().out.startswith(f"{path}\t")


BAD_LISTS = {
    "missing": ("label\tpicture\ndot\tdot/999.png\n", 'list.tsv:2: there is no picture "dot/999.png"'),
    "outside": ("label\tpicture\ndot\t../../x.png\n", "is not inside"),
    "no label": ("name\tpicture\ndot\tdot/001.png\n", 'no column "label"'),
    "empty label": ("label\tpicture\n\tdot/001.png\n", "is not a label"),
    "two labels": ("label\tpicture\ndot\tdot/001.png\ndown\tdot/001.png\n", 'has also the label "dot"'),
    "one label": ("label\tpicture\n" + "".join(f"dot\tdot/{n:03}.png\n" for n in range(1, 90, 3)), "at least two"),
    "few": ("label\tpicture\ndot\tdot/001.png\ndown\tdown/002.png\n", "2 pictures are too few"),
}


@pytest.mark.parametrize("case", BAD_LISTS)
def test_a_bad_list_is_one_line(folder, tmp_path, capsys, case):
    text, message = BAD_LISTS[case]
    (tmp_path / "list.tsv").write_text(text)
    arguments = ["train", "--task", "classify", str(tmp_path / "list.tsv"), "--images", str(folder / "marks")]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 2
    assert message in error_of(capsys)
    assert not (tmp_path / "run").exists()


def test_other_bad_data_is_one_line(folder, tmp_path, capsys):
    (tmp_path / "flat").mkdir()
    shutil.copy(folder / "marks" / "dot" / "001.png", tmp_path / "flat")
    (tmp_path / "none").mkdir()
    out = ["--out", str(tmp_path / "run")]
    for arguments, message in (
        ([str(tmp_path / "flat")], "is in no subfolder"),
        ([str(tmp_path / "none")], "there is no picture here"),
        ([str(folder / "marks"), "--images", str(tmp_path / "flat")], "is not inside"),
        ([str(tmp_path / "marks.tsv")], "no such file"),
    ):
        assert main(["train", "--task", "classify", *arguments, *out]) == 2
        assert message in error_of(capsys)
    for arguments, message in (
        (["classify", str(folder / "run"), str(tmp_path / "none.png")], "no such file"),
        (["classify", str(folder / "run"), str(tmp_path / "none")], "there is no picture in it"),
        (["evaluate", str(folder / "run"), "--source", str(tmp_path / "none.tsv")], "no such file"),
    ):
        assert main(arguments) == 2
        assert message in error_of(capsys)
