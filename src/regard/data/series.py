"""Series of frames, read from files: what sensors record, or the pictures of a video, with or without labels.

A frame is a vector of numbers. A series of T frames of F numbers is an array [T, F], with one label per frame, with one
label in all, or without labels. The formats are described in docs/frames.md. Nothing is unpickled: an array of Python
objects is an error. All numbers must be finite; they become 32-bit floats.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.config import PictureSettings
from regard.data.pictures import read_picture, read_size
from regard.data.records import read_csv, read_parquet
from regard.errors import CorpusError
from regard.files import opened, read_lines, split_suffix

FORMATS = ".npz .parquet .csv, or a folder of such files or of numbered pictures"
ARRAYS = ("frames", "labels", "lengths")
"""The arrays in a .npz file."""
INPUT = "frames"
"""What error messages call series from a program."""
LABEL, SERIES = "label", "series"
"""Columns of a table: the label of a frame, and the name of its series."""
IGNORED = ("time", "timestamp")
"""Columns of a table that are not read: its rows are in the order of time."""
PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp")
PICTURE_LABELS = "labels.txt"
"""File in a folder of pictures with the label of each picture, one per line."""
_READERS = (".npz", ".parquet", ".csv")
_NUMBER = re.compile(r"\d+")

FrameValues = NDArray[np.float32]


class Series(NamedTuple):
    """A series of frames [T, F], and the label of each frame.

    If the whole series has one label, `labels` has only this label; without labels, it is empty.
    """

    frames: FrameValues
    labels: tuple[str, ...] = ()
    name: str = ""

    @property
    def content(self) -> str:
        """A text that differs between series with different frames."""
        return blake2b(self.frames.tobytes(), digest_size=16).hexdigest()


def take_series(values: Any, place: int) -> Series:
    """Make a series of an array [T, F], or of nested lists, from a program. `place`: its index, for error messages."""
    if isinstance(values, Series):
        return values
    try:
        array = np.asarray(values)
    except ValueError:
        raise CorpusError(INPUT, f"series {place}: frames of different widths; give an array [T, F]") from None
    frames = to_frames(array, INPUT, f"series {place}")
    if frames.ndim != 2 or not frames.size:
        raise CorpusError(INPUT, f"series {place}: give an array [T, F] with at least one frame")
    if not np.isfinite(frames).all():
        raise CorpusError(INPUT, f"series {place}: holds values that are not finite; repair or remove such frames")
    return Series(frames, (), str(place))


def holds_frames(path: str | Path) -> bool:
    """Whether a path is in one of `FORMATS`, as far as its name shows, or is a folder."""
    return split_suffix(path)[0] in _READERS or Path(path).is_dir()


def holds_series(path: str | Path) -> bool:
    """Whether a path is a file that can only have series, or a folder with such files."""
    path = Path(path)
    inside = path.iterdir() if path.is_dir() else [path]
    return any(one.suffix.lower() in (".npz", ".parquet") for one in inside)


def read_series(path: str | Path, pictures: PictureSettings, *, labeled: str = "") -> list[Series]:
    """Read all series of a file or folder in one of `FORMATS`.

    `labeled`: "frames" if every frame must have a label, "series" if every series must have one label; "" if labels may
    be missing. `pictures`: the size that pictures get.
    """
    path = Path(path)
    found = _read_folder(path, pictures) if path.is_dir() else _read_file(path)
    if not found:
        raise CorpusError(path, "there are no frames in it; check that it is the right file")
    for one in found:
        _check(one, path)
        wanted = {"frames": len(one.frames), "series": 1}.get(labeled, len(one.labels))
        if labeled and not one.labels:
            raise CorpusError(
                path, f'{_said(one)}has no labels; add an array, column or file "labels" (docs/frames.md)'
            )
        if len(one.labels) not in (wanted, 0) or len(one.labels) not in (0, 1, len(one.frames)):
            need = {"frames": "one label per frame", "series": "one label for the whole series"}.get(labeled, "")
            counts = f"{len(one.labels):,} labels for {len(one.frames):,} frames"
            raise CorpusError(path, f"{_said(one)}{counts}; give {need or 'one label per frame'}")
    require_width(found, found[0].frames.shape[1], path)
    return found


def require_width(series: Iterable[Series], width: int, where: str | Path, of: str = "the first series") -> None:
    """Raise an error if a frame does not have `width` numbers. `of`: what has this width, for the message."""
    for one in series:
        if one.frames.shape[1] != width:
            has = f"{_said(one)}has frames of {one.frames.shape[1]} numbers, but {of} has frames of {width}"
            raise CorpusError(where, f"{has}; all frames must have the same number of values")


def to_frames(values: Any, where: str | Path, what: str = "frames") -> FrameValues:
    """Convert an array of real numbers to 32-bit floats; other types, and values that are not finite, are errors."""
    array = np.asarray(values)
    if array.dtype.kind not in "iufb":
        kind = {"O": "Python objects", "U": "texts", "S": "texts", "c": "complex numbers"}.get(
            array.dtype.kind, "dates"
        )
        raise CorpusError(where, f"{what}: holds {kind}, not real numbers; convert it to integers or floats")
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array.astype(np.float32))


def to_labels(values: Any, where: str | Path) -> NDArray[np.str_]:
    """Convert an array of labels to texts: whole numbers, booleans or texts that are not empty; others are errors."""
    array = np.asarray(values)
    if array.dtype.kind == "f":
        if not (np.isfinite(array).all() and (array == np.floor(array)).all()):
            raise CorpusError(where, "labels: holds numbers that are not whole; give whole numbers or texts")
        array = array.astype(np.int64)
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    if array.dtype.kind not in "iubU":
        raise CorpusError(where, "labels: give whole numbers or texts")
    texts = np.char.strip(array.astype(np.str_))
    if texts.size and (np.char.str_len(texts) == 0).any():
        raise CorpusError(where, f"labels: label {int((np.char.str_len(texts) == 0).argmax())} (from 0) is empty")
    return texts


def _check(series: Series, path: Path) -> None:
    frames = series.frames
    if not frames.size:
        raise CorpusError(path, f"{_said(series)}a series without frames, or frames without numbers; leave it out")
    if not np.isfinite(frames).all():
        place, column = np.argwhere(~np.isfinite(frames))[0].tolist()
        value = "not a number (NaN)" if np.isnan(frames[place, column]) else "infinite, or too large for a 32-bit float"
        where = f"{_said(series)}value {column} of frame {place} (counted from 0) is {value}"
        raise CorpusError(path, f"{where}; repair or remove such frames")


def _said(series: Series) -> str:
    return f"{series.name}: " if series.name else ""


def _read_file(path: Path) -> list[Series]:
    suffix = split_suffix(path)[0]
    if suffix == ".npz":
        return list(_read_npz(path))
    if suffix == ".parquet":
        return list(_read_parquet(path))
    if suffix == ".csv":
        return list(_read_csv(path))
    raise CorpusError(path, f"not a file of frames; the formats are {FORMATS}")


# ---------------------------------------------------------------------------------------------------------------------
# NumPy


def _read_npz(path: Path) -> Iterator[Series]:
    arrays = _load_arrays(path)
    if "frames" not in arrays:
        names = ", ".join(arrays) or "nothing"
        raise CorpusError(
            path, f'has no array "frames" (it has {names}); save it by np.savez(file, frames=..., labels=...)'
        )
    frames = to_frames(arrays["frames"], path)
    labels = to_labels(arrays["labels"], path) if "labels" in arrays else None
    lengths = _whole_lengths(arrays["lengths"], path) if "lengths" in arrays else None
    if frames.ndim == 1 and frames.size:  # one number per frame
        frames = frames[:, None]
    if frames.ndim not in (2, 3):
        raise CorpusError(path, f"frames: has {frames.ndim} axes; give [T, F] for one series, or [N, T, F] for several")
    if frames.ndim == 2 and lengths is None:
        own = () if labels is None else tuple(np.atleast_1d(labels).ravel().tolist())
        yield Series(frames, own, path.stem)
        return
    count, most = frames.shape[:2] if frames.ndim == 3 else (0, 0)
    if lengths is None:
        lengths = [most] * count
    if frames.ndim == 3 and (len(lengths) != count or max(lengths, default=0) > most):
        raise CorpusError(
            path, f"lengths: give {count} numbers, each at most {most}, as frames is [{count}, {most}, ...]"
        )
    if frames.ndim == 2 and sum(lengths) != len(frames):
        raise CorpusError(path, f"lengths: their sum is {sum(lengths):,}, but there are {len(frames):,} frames")
    yield from _divide(frames, labels, lengths, path)


def _divide(
    frames: FrameValues, labels: NDArray[np.str_] | None, lengths: Sequence[int], path: Path
) -> Iterator[Series]:
    """Yield the series of an array [N, T, F], or of series [T, F] one after another."""
    padded, one_each, start = frames.ndim == 3, False, 0
    if labels is not None:
        one_each = labels.shape == (len(lengths),)
        expected = frames.shape[:2] if padded else frames.shape[:1]
        if labels.shape != expected and not one_each:
            shapes = f"labels is {list(labels.shape)}, but frames is {list(frames.shape)}"
            raise CorpusError(path, f"{shapes}; give one label per frame, {list(expected)}, or one per series")
    for place, length in enumerate(lengths):
        own = frames[place, :length] if padded else frames[start : start + length]
        given: tuple[str, ...] = ()
        if labels is not None and one_each:
            given = (str(labels[place]),)
        elif labels is not None:
            given = tuple((labels[place, :length] if padded else labels[start : start + length]).tolist())
        yield Series(own, given, f"{path.stem}-{place}")
        start += length


def _load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    with opened(path, unpacked=False) as file:
        name = "the file"
        try:
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise CorpusError(path, "a single array; save it by np.savez(file, frames=..., labels=...)")
            found = {}
            for name in archive.files:
                found[name] = archive[name] if name in ARRAYS else np.empty(0)
            return found
        except (ValueError, OSError, EOFError, KeyError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
            if "allow_pickle" in str(error) or "pickled" in str(error):
                problem = f"{name}: holds Python objects, which could run code when they are read"
                advice = "save numbers and texts only; series of different lengths: one after another, with lengths"
                raise CorpusError(path, f"{problem}; {advice}") from None
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise CorpusError(path, f"not an .npz file, or a damaged one ({reason})") from None


def _whole_lengths(values: NDArray[Any], path: Path) -> list[int]:
    if values.dtype.kind not in "iu" or values.ndim != 1 or (values < 0).any():
        raise CorpusError(path, "lengths: give a list of whole numbers, the number of frames of each series")
    return [int(length) for length in values]


# ---------------------------------------------------------------------------------------------------------------------
# Tables: one row per frame


def _read_csv(path: Path) -> Iterator[Series]:
    header: list[str] = []

    def find(cells: list[str]) -> list[int]:
        header.extend(cells)
        return list(range(len(cells)))

    rows = read_csv(path, find, "the names of the columns")
    cells: Iterator[tuple[int, Any]] = ((number, [row] if len(header) == 1 else row) for number, row in rows)
    yield from _series_of_rows(((number, dict(zip(header, row, strict=True))) for number, row in cells), path)


def _read_parquet(path: Path) -> Iterator[Series]:
    """A row is a frame or, if there is a column "frames", a series: a list of lists, with a list "labels"."""
    rows = read_parquet(
        path, lambda names: [name for name in names if name in ARRAYS[:2]] if "frames" in names else names
    )
    first = next(rows)
    everything = chain([first], rows)
    if "frames" not in first[1]:
        lowered = ((number, {name.lower(): value for name, value in row.items()}) for number, row in everything)
        yield from _series_of_rows(lowered, path)
        return
    for number, row in everything:
        name = f"row {number}"
        try:
            values = np.array(row["frames"])
        except ValueError:
            raise CorpusError(path, f"{name}: frames of different widths; give lists of equal length") from None
        labels = row.get("labels")
        own = () if labels is None else tuple(to_labels(labels, f"{path}: {name}").ravel().tolist())
        frames = to_frames(values, path, name)
        yield Series(frames[:, None] if frames.ndim == 1 else frames, own, name)


def _series_of_rows(rows: Iterable[tuple[int, Mapping[str, Any]]], path: Path) -> Iterator[Series]:
    """Make series of the rows of a table. Columns other than `LABEL`, `SERIES` and `IGNORED` are numbers of a frame."""
    values: dict[str, list[list[float]]] = {}
    labels: dict[str, list[Any]] = {}
    columns: list[str] = []
    for number, row in rows:
        columns = columns or [name for name in row if name not in (LABEL, SERIES, *IGNORED)]
        name = str(row.get(SERIES, "")).strip()
        try:
            values.setdefault(name, []).append([float(row[column]) for column in columns])
        except (TypeError, ValueError):
            wrong = next(column for column in columns if not _is_number(row[column]))
            problem = f'the column "{wrong}" has "{row[wrong]}", which is not a number'
            advice = f"frames are numbers; only the columns {LABEL}, {SERIES}, {' and '.join(IGNORED)} may be other"
            raise CorpusError(path, f"{problem}; {advice}", line=number) from None
        if LABEL in row:
            labels.setdefault(name, []).append("" if row[LABEL] is None else row[LABEL])
    if not columns:
        raise CorpusError(path, f"no rows, or no column with numbers; the formats are {FORMATS}")
    for name, own in values.items():
        given = tuple(to_labels(labels[name], path).tolist()) if name in labels else ()
        yield Series(np.array(own, np.float64).astype(np.float32), given, name or path.stem)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


# ---------------------------------------------------------------------------------------------------------------------
# Folders


def _read_folder(folder: Path, pictures: PictureSettings) -> list[Series]:
    """Series in a folder: files of series, pictures of one series, or folders with the pictures of one series each."""
    inside = sorted((one for one in folder.iterdir() if not one.name.startswith(".")), key=_natural)
    files = [one for one in inside if split_suffix(one)[0] in _READERS]
    shown = [one for one in inside if one.suffix.lower() in PICTURES]
    folders = [one for one in inside if one.is_dir()]
    kinds = [kind for kind in (files, shown, folders) if kind]
    if len(kinds) != 1:
        problem = "several kinds of series" if kinds else "no series"
        raise CorpusError(folder, f"{problem} in this folder; give a folder of .npz files, or of numbered pictures")
    if files:
        return [
            _renamed(one, path, several=len(found) > 1)
            for path in files
            for found in [_read_file(path)]
            for one in found
        ]
    if shown:
        return [_read_pictures(folder, shown, pictures)]
    return [
        _read_pictures(one, [file for file in one.iterdir() if file.suffix.lower() in PICTURES], pictures)
        for one in folders
    ]


def _renamed(series: Series, path: Path, *, several: bool) -> Series:
    return series._replace(name=f"{path.name}: {series.name}" if several else path.stem)


def _read_pictures(folder: Path, files: Sequence[Path], settings: PictureSettings) -> Series:
    """Make a series of numbered pictures: a frame is the values of all pixels, from 0 to 1."""
    if not files:
        raise CorpusError(folder, "no pictures in this folder; remove it, or add numbered pictures")
    ordered = _in_order(folder, files)
    pixels: list[NDArray[np.uint8]] = []
    first: tuple[int, int] | None = None
    for file in ordered:
        with opened(file, unpacked=False) as stream:
            content = stream.read()
        shape = read_size(content, str(file))
        first = first or shape
        if shape != first:
            sizes = f"{shape[1]} x {shape[0]} pixels, but {ordered[0].name} has {first[1]} x {first[0]}"
            raise CorpusError(file, f"{sizes}; all pictures of a series must have the same size")
        pixels.append(read_picture(content, str(file), settings).reshape(-1))
    labels: tuple[str, ...] = ()
    if (folder / PICTURE_LABELS).is_file():
        lines = [line.strip() for line in read_lines(folder / PICTURE_LABELS)]
        labels = tuple(to_labels(lines, folder / PICTURE_LABELS).tolist())
    return Series(np.stack(pixels).astype(np.float32) / np.float32(255), labels, folder.name)


def _in_order(folder: Path, files: Sequence[Path]) -> list[Path]:
    """The pictures in the order of the last number in their names, which must count without gaps."""
    numbered: dict[int, Path] = {}
    for file in sorted(files):
        numbers = _NUMBER.findall(file.stem)
        if not numbers:
            raise CorpusError(file, "has no number in its name; number the pictures of a series, e.g. 0001.png")
        other = numbered.setdefault(int(numbers[-1]), file)
        if other is not file:
            raise CorpusError(file, f"has the same number as {other.name}; keep one of them")
    for before, after in pairwise(sorted(numbered)):
        if after != before + 1:
            gap = f"picture {before + 1} is missing between {numbered[before].name} and {numbered[after].name}"
            raise CorpusError(folder, f"{gap}; add it, or divide the pictures into two folders")
    return [numbered[number] for number in sorted(numbered)]


def _natural(path: Path) -> list[tuple[int, str]]:
    """A key for sorting names so that walk2 comes before walk10."""
    parts: Callable[[str], list[str]] = re.compile(r"(\d+)").split
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts(path.name)]
