"""What tasks on pictures share: lists, parts without common pictures, facts for the plan, inputs, kept pictures."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from regard.config import Corpus, DataSettings, PictureSettings, Recipe
from regard.data.drawings import read_drawings
from regard.data.pictures import PictureSource, PictureStore
from regard.errors import CorpusError, SettingsError
from regard.tasks.pictures import (
    Gallery,
    HeldOutPictures,
    PictureExamples,
    fit_pictures,
    kept_pictures,
    picture_input,
    picture_lengths,
    picture_mask,
    plan_pictures,
    read_examples,
    read_list,
    read_pictures,
    training_input,
)


class Named(NamedTuple):
    picture: str
    text: str


def png(color: object = "red", size: tuple[int, int] = (20, 10)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, color).save(buffer, "PNG")  # type: ignore[arg-type]
    return buffer.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    images = tmp_path / "images"
    images.mkdir()
    for number in range(40):
        (images / f"{number}.png").write_bytes(png((number, 0, 0)))
    return tmp_path


def write(path: Path, names: Sequence[object]) -> str:
    path.write_text("picture\tcaption\n" + "".join(f"{name}.png\ttext {name}\n" for name in names), encoding="utf-8")
    return str(path)


def read(folder: Path, data: DataSettings) -> PictureExamples[Named]:
    def read_one(corpus: Corpus, source: PictureSource) -> list[Named]:
        return [Named(row.picture, row.text("caption")) for row in read_list(corpus, source, ("picture", "caption"))]

    recipe = Recipe(data=data, pictures=PictureSettings(images=str(folder / "images"), size=(8, 16)))
    return read_examples(recipe, read_one, "a list of pictures", "captions")


def test_a_picture_is_never_in_two_parts(folder: Path) -> None:
    listed = write(folder / "list.tsv", [*range(40), *range(40)])
    found = read(folder, DataSettings(train=(Corpus(listed),), valid_size=8, test_size=8))
    parts = [{one.picture for one in part} for part in (found.parts.train(), *found.parts.held_out.values())]
    assert [len(part) for part in parts] == [32, 4, 4]
    assert len(set.union(*parts)) == 40
    assert sorted(found.names) == sorted({f"{number}.png" for number in range(40)})
    assert found.describe().endswith(
        "64 captions to train on, 8 for validation, 8 for the test; of 32, 4 and 4 pictures"
    )


def test_a_picture_in_two_files_is_an_error(folder: Path) -> None:
    train, valid = write(folder / "train.tsv", range(30)), write(folder / "valid.tsv", [35, 7])
    with pytest.raises(CorpusError, match=r'valid.tsv: the picture "7.png" is in the training data, too; remove it'):
        read(folder, DataSettings(train=(Corpus(train),), valid=(Corpus(valid),)))


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".jsonl", ".parquet"])
def test_lists_of_every_format(folder: Path, suffix: str) -> None:
    rows = [{"id": str(place), "Image": f"{place}.png", "caption": f"a, {place}"} for place in range(3)]
    path = folder / f"list{suffix}"
    if suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        comma, quote = (",", '"') if suffix == ".csv" else ("\t", "")
        lines = [comma.join(rows[0]), *(comma.join(f"{quote}{cell}{quote}" for cell in row.values()) for row in rows)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with PictureSource(folder / "images") as source:
        found = [(row.picture, row.text("caption")) for row in read_list(Corpus(str(path)), source, ("picture", "x"))]
    assert found == [(f"{place}.png", f"a, {place}") for place in range(3)]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("picture\tcaption\n0.png\ta\n77.png\tb\n", r'list.tsv:3: there is no picture "77.png" in .*images; did you'),
        ("picture\tcaption\n\ta\n", 'list.tsv:2: no name of a picture in the column "picture"'),
        ("picture\tcaption\n../list.tsv\ta\n", 'list.tsv:2: the name "../list.tsv" is not inside'),
        ("picture\tcaption\n0.png\n", "list.tsv:2: no tab in this row; the header names more columns"),
    ],
)
def test_a_bad_list_is_one_clear_line(folder: Path, content: str, problem: str) -> None:
    (folder / "list.tsv").write_text(content, encoding="utf-8")
    with pytest.raises(CorpusError, match=problem):
        read(folder, DataSettings(train=(Corpus(str(folder / "list.tsv")),)))


def test_pictures_must_be_named(tmp_path: Path) -> None:
    recipe = Recipe(data=DataSettings(train=(Corpus("list.tsv"),)))
    with pytest.raises(SettingsError, match=r"pictures.images is empty: name .* \(--images DIR\|ZIP\)"):
        read_examples(recipe, lambda corpus, source: [Named("", "")], "", "captions")


def test_the_plan_measures_the_pictures(folder: Path) -> None:
    found = read(folder, DataSettings(train=(Corpus(write(folder / "list.tsv", range(40))),), valid_size=4))
    facts = found.facts
    assert (facts.pictures, facts.height, facts.width) == (32, 10, 20)
    assert facts.mean == pytest.approx(-0.95, abs=0.05)  # nearly black
    plan = {choice.name.partition(".")[2]: choice.value for choice in plan_pictures(facts, {})}
    assert (plan["size"], plan["patch_size"]) == ((8, 20), 4)
    assert PictureSettings(**plan)
    photo = {choice.name: choice.value for choice in plan_pictures(facts._replace(height=480, width=640), {})}
    assert photo["pictures.size"] == (96, 128)
    assert photo["pictures.patch_size"] == 16
    for own in ({"size": (60, 60)}, {"size": (72, 72)}, {"size": (27, 27)}, {"patch_size": 12}, {"patch_size": 4}):
        mixed = {choice.name.partition(".")[2]: choice.value for choice in plan_pictures(facts, {"pictures": own})}
        assert PictureSettings(**(mixed | own))


def test_random_changes_depend_on_seed_and_position_only() -> None:
    recipe = Recipe(pictures=PictureSettings(size=(16, 16), shift=0.2, mean=0.5, deviation=0.25))
    pixels = np.random.default_rng(1).integers(0, 256, (2, 3, 16, 16), np.uint8)
    changed = training_input(pixels, recipe, 7, 1.0)
    assert torch.equal(changed, training_input(pixels, recipe, 7, 1.0))
    assert not torch.equal(changed, training_input(pixels, recipe, 8, 1.0))
    plain = picture_input(pixels, recipe.pictures)
    assert torch.equal(training_input(pixels, recipe, 7, 0.0), plain)
    assert plain[0, 0, 0, 0].item() == pytest.approx((pixels[0, 0, 0, 0] / 127.5 - 1 - 0.5) / 0.25, abs=1e-5)
    assert picture_mask(recipe.pictures, 2).shape == (2, 4)
    assert picture_lengths(recipe.pictures, np.array([2, 9]))[0].tolist() == [4, 9]


def test_held_out_pictures_are_kept_in_their_records() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (2, 3, 8, 8), np.uint8)
    gallery = Gallery(PictureStore(Path(), pixels), ["a.png", "b.png"])
    held_out = HeldOutPictures([Named("b.png", "x"), Named("b.png", "y"), Named("a.png", "z")], gallery)
    records = json.loads(json.dumps(held_out.records()))
    assert ["png" in record for record in records] == [True, False, True]
    assert np.array_equal(kept_pictures(records).pixels(["a.png", "b.png"]), pixels)
    assert len(held_out.first(1).records()) == 1
    small = PictureSettings(size=(8, 8), channels=1)
    assert fit_pictures(pixels, small).shape == (2, 1, 8, 8)
    assert fit_pictures(pixels, PictureSettings(size=(8, 8))) is pixels


def test_pictures_of_users_are_paths_bytes_or_arrays(folder: Path) -> None:
    settings = PictureSettings(size=(8, 16))
    red = np.zeros((10, 20, 3), np.uint8)
    red[:, :, 0] = 255
    (folder / "red.png").write_bytes(png())
    found = read_pictures([str(folder / "red.png"), folder / "red.png", png(), red], settings)
    assert found.shape == (4, 3, 8, 16)
    assert np.array_equal(found[0], found[3])
    assert np.array_equal(found[0], found[2])
    for wrong in (red.astype(np.float32), red[:, :, :2], red[:0]):
        with pytest.raises(CorpusError, match="picture 1: an array of pixels must be uint8"):
            read_pictures([wrong], settings)


def test_built_in_drawings_are_a_list() -> None:
    with PictureSource.open("shapes") as source:
        rows = list(read_list(Corpus("shapes:valid"), source, ("picture", "caption")))
    assert len({row.picture for row in rows}) == 300 < len(rows)
    assert rows[0].text("en") == read_drawings("valid")[0].captions["en"][0].text
