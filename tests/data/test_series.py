"""Series of frames from files: every format, and every kind of wrong input."""

import numpy as np
import pytest

from regard.config import PictureSettings
from regard.data.series import holds_frames, read_series
from regard.errors import CorpusError

PICTURES = PictureSettings(size=(4, 6), channels=1, patch_size=2)
FRAMES = np.arange(12.0).reshape(6, 2)
LABELS = np.array(["a", "a", "b", "b", "b", "a"])


def save(path, **arrays):
    np.savez(path, **arrays)
    return path


def read(path, labeled="frames"):
    return read_series(path, PICTURES, labeled=labeled)


@pytest.mark.parametrize("dtype", ["<f8", ">f4", "f2", "i8", "u1", "?", "g"])
def test_one_series_of_any_type(tmp_path, dtype):
    [found] = read(save(tmp_path / "walk.npz", frames=FRAMES.astype(dtype), labels=LABELS))
    assert found.frames.dtype == np.float32
    assert np.array_equal(found.frames, FRAMES.astype(dtype).astype(np.float32))
    assert found.labels == tuple("aabbba")
    assert found.name == "walk"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (np.array([0, 0, 1, 1, 1, 0], np.int8), "001110"),
        (np.array([0.0, 0, 1, 1, 1, 0]), "001110"),
        (np.array([b"a", b"a", b"b", b"b", b"b", b"a"]), "aabbba"),
    ],
)
def test_labels_are_texts(tmp_path, labels, expected):
    assert read(save(tmp_path / "a.npz", frames=FRAMES, labels=labels))[0].labels == tuple(expected)


def test_several_series_in_a_file(tmp_path):
    ragged = save(tmp_path / "a.npz", frames=FRAMES, labels=LABELS, lengths=[2, 4])
    assert [one.labels for one in read(ragged)] == [("a", "a"), ("b", "b", "b", "a")]
    padded = np.full((2, 4, 2), np.nan)
    padded[0, :2], padded[1] = FRAMES[:2], FRAMES[2:]
    texts = np.array([["a", "a", "", ""], ["b", "b", "b", "a"]])
    texts[texts == ""] = "-"
    other = save(tmp_path / "b.npz", frames=padded, labels=texts, lengths=[2, 4])
    for one, two in zip(read(ragged), read(other), strict=True):
        assert np.array_equal(one.frames, two.frames)
        assert one.labels == two.labels
    one_each = save(tmp_path / "c.npz", frames=FRAMES, labels=["x", "y"], lengths=[2, 4])
    assert [one.labels for one in read(one_each, "series")] == [("x",), ("y",)]
    assert [one.labels for one in read(save(tmp_path / "d.npz", frames=FRAMES), "")] == [()]


def test_tables(tmp_path):
    rows = [f"{one},{x},{y},{label},2026-01-01" for one, (x, y), label in zip("ppqqqq", FRAMES, LABELS, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["series,x,y,label,timestamp", *rows]))
    found = read(tmp_path / "t.csv")
    assert [one.name for one in found] == ["p", "q"]
    assert np.array_equal(found[1].frames, FRAMES[2:].astype(np.float32))
    assert found[1].labels == ("b", "b", "b", "a")
    (tmp_path / "one.csv").write_text("x\n1\n2\n")
    assert read(tmp_path / "one.csv", "")[0].frames.tolist() == [[1], [2]]


def test_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    flat = {"X": FRAMES[:, 0], "y": FRAMES[:, 1], "Label": LABELS, "series": list("ppqqqq")}
    parquet.write_table(arrow.table(flat), tmp_path / "flat.parquet")
    nested = {"frames": [FRAMES[:2].tolist(), FRAMES[2:].tolist()], "labels": [["a", "a"], ["b", "b", "b", "a"]]}
    parquet.write_table(arrow.table(nested), tmp_path / "nested.parquet")
    for one, two in zip(read(tmp_path / "flat.parquet"), read(tmp_path / "nested.parquet"), strict=True):
        assert np.array_equal(one.frames, two.frames)
        assert one.labels == two.labels


def test_folders(tmp_path):
    for number in (1, 2, 10):
        save(tmp_path / f"walk{number}.npz", frames=FRAMES + number, labels=LABELS)
    assert [one.name for one in read(tmp_path)] == ["walk1", "walk2", "walk10"]
    assert holds_frames(tmp_path)
    assert holds_frames("a.npz")
    assert not holds_frames("a.conll")


def pictures(folder, names, size=(6, 4)):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    folder.mkdir(parents=True)
    for place, name in enumerate(names):
        image.new("L", size, 50 * place).save(folder / name)
    return folder


def test_pictures_become_frames(tmp_path):
    one = pictures(tmp_path / "video" / "a", ["f10.png", "f9.png", "f8.png"])
    (one / "labels.txt").write_text("x\nx\ny\n")
    [found] = read(tmp_path / "video")
    assert found.name == "a"
    assert found.labels == ("x", "x", "y")
    assert found.frames.shape == (3, 24)
    assert found.frames[:, 0] == pytest.approx([100 / 255, 50 / 255, 0])  # in the order of the numbers
    assert np.array_equal(read(one)[0].frames, found.frames)


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["1.png", "2.png", "4.png"], "picture 3 is missing between 2.png and 4.png"),
        (["a1.png", "b1.png"], "has the same number as a1.png"),
        (["a.png"], "has no number in its name"),
    ],
)
def test_wrong_names_of_pictures(tmp_path, names, problem):
    with pytest.raises(CorpusError, match=problem):
        read(pictures(tmp_path / "a", names))


def test_pictures_of_different_sizes(tmp_path):
    pictures(tmp_path / "a", ["1.png"])
    pictures(tmp_path / "b", ["2.png"], size=(8, 8))
    (tmp_path / "b" / "2.png").rename(tmp_path / "a" / "2.png")
    with pytest.raises(CorpusError, match=r"2\.png: 8 x 8 pixels, but 1\.png has 6 x 4"):
        read(tmp_path / "a")
    (tmp_path / "a" / "2.png").write_bytes(b"nothing")
    with pytest.raises(CorpusError, match="not a picture"):
        read(tmp_path / "a")


OBJECTS = np.array([[1.0], [1.0, 2.0]], dtype=object)
BAD = {
    "has no array": {"data": FRAMES},
    "holds Python objects": {"frames": OBJECTS},
    "labels: holds Python objects": {"frames": FRAMES, "labels": np.array(["a", 1] * 3, dtype=object)},
    "holds texts, not real numbers": {"frames": np.array([["1", "2"]])},
    "holds complex numbers": {"frames": FRAMES * 1j},
    "holds dates": {"frames": np.array([["2026-01-01"]], dtype="datetime64[D]")},
    r"5 labels for 6 frames; give one label per frame": {"frames": FRAMES, "labels": LABELS[:5]},
    "value 1 of frame 2 .* is not a number": {"frames": np.where(FRAMES == 5, np.nan, FRAMES), "labels": LABELS},
    "is infinite": {"frames": np.where(FRAMES == 5, np.inf, FRAMES), "labels": LABELS},
    "or too large for a 32-bit float": {"frames": np.where(FRAMES == 5, 1e300, FRAMES), "labels": LABELS},
    "a series without frames": {"frames": np.empty((0, 2)), "labels": LABELS[:0]},
    "without frames, or frames without numbers": {"frames": np.empty((6, 0)), "labels": LABELS},
    "has 4 axes": {"frames": FRAMES.reshape(1, 1, 6, 2)},
    "their sum is 5, but there are 6": {"frames": FRAMES, "labels": LABELS, "lengths": [2, 3]},
    "give a list of whole numbers": {"frames": FRAMES, "labels": LABELS, "lengths": [2.5, 3.5]},
    "each at most 6": {"frames": FRAMES[None], "labels": LABELS[None], "lengths": [7]},
    r"labels is \[2, 3\], but frames is \[1, 6, 2\]": {"frames": FRAMES[None], "labels": LABELS.reshape(2, 3)},
    "numbers that are not whole": {"frames": FRAMES, "labels": FRAMES[:, 0] / 4},
    "label 2 .* is empty": {"frames": FRAMES, "labels": ["a", "b", " ", "a", "a", "a"]},
    'has no labels; add an array, column or file "labels"': {"frames": FRAMES},
}


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize(("problem", "arrays"), BAD.items(), ids=BAD.keys())
def test_a_wrong_npz_file_is_one_clear_line(tmp_path, problem, arrays):
    with pytest.raises(CorpusError, match=problem) as caught:
        read(save(tmp_path / "bad.npz", **arrays))
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "bad.npz") in str(caught.value)


def test_other_wrong_files(tmp_path):
    def refuse(name, content, problem):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(CorpusError, match=problem) as caught:
            read(path)
        assert "\n" not in str(caught.value)

    refuse("a.npz", b"PK\x03\x04 no archive", "not an .npz file, or a damaged one")
    refuse("b.npz", b"", "the file is empty")
    refuse("c.csv", b"x,label\n1,a\nhello,a\n", 'c.csv:3: the column "x" has "hello", which is not a number')
    refuse("d.csv", b"x,label\n1,a\nnan,a\n", "value 0 of frame 1 .* is not a number")
    refuse("e.csv", b"label\na\n", "no rows, or no column with numbers")
    refuse("f.mat", b"1", "not a file of frames; the formats are")
    np.save(tmp_path / "g.npy", FRAMES)
    (tmp_path / "g.npy").rename(tmp_path / "g.npz")
    with pytest.raises(CorpusError, match="a single array; save it by"):
        read(tmp_path / "g.npz")
    (tmp_path / "h").mkdir()
    with pytest.raises(CorpusError, match="no series in this folder"):
        read(tmp_path / "h")
    save(tmp_path / "h" / "1.npz", frames=FRAMES, labels=LABELS)
    save(tmp_path / "h" / "2.npz", frames=FRAMES[:, :1], labels=LABELS)
    with pytest.raises(CorpusError, match="2: has frames of 1 numbers, but the first series has frames of 2"):
        read(tmp_path / "h")
