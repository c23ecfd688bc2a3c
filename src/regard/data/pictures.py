"""Pictures: read from files, a folder or a ZIP file, made one size, and stored for training.

A picture becomes an array of bytes [C, Y, X] with 3 channels (red, green, blue) or 1 (gray). Reading is safe for files
from anybody: only five common formats are decoded, the size is checked in the header before anything is decoded, a ZIP
file is never unpacked to the disk, and names in a list cannot leave the folder. Transparent parts become white, the
rotation that cameras store is applied, and of an animation the first frame is read.
"""

from __future__ import annotations

import base64
import io
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from regard.config import PictureSettings
from regard.data.builtin import corpus_of
from regard.errors import CorpusError, RunError, SettingsError, nearest
from regard.files import opened

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")
"""The formats that are decoded. Pillow has decoders for many more, of which some start other programs."""
SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp")
"""Endings of the names of files in these formats."""
MOST_PIXELS = 64_000_000
"""Largest number of pixels of a picture; larger ones are refused before they are decoded."""
MOST_BYTES = 64 << 20
"""Largest size of a file, also when it is unpacked from a ZIP file."""

Pixels = NDArray[np.uint8]
"""A picture: [C, Y, X]."""


# ---------------------------------------------------------------------------------------------------------------------
# One picture


def read_picture(content: bytes, where: str, settings: PictureSettings) -> Pixels:
    """Decode the `content` of a picture file and make it the size of the settings, [C, Y, X].

    Anything that is not a picture, damaged or too large is a CorpusError whose message begins with `where`.
    """
    with _opened(content, where) as picture:
        height, width = settings.size
        picture.draft("RGB", (2 * width, 2 * height))  # a JPEG file is decoded at a smaller size, if it is large
        return _fit(_flatten(_upright(picture)), settings)


def read_size(content: bytes, where: str) -> tuple[int, int]:
    """Height and width in pixels of the picture in a file, without decoding it. Errors are those of `read_picture`."""
    with _opened(content, where) as picture:
        columns, rows = picture.size
        return rows, columns


@contextmanager
def _opened(content: bytes, where: str) -> Iterator[Any]:
    """Open a picture whose size is acceptable. Errors inside the `with` block become a CorpusError."""
    image = _prepare_pillow()
    if len(content) > MOST_BYTES:
        raise _too_many_bytes(where)
    try:
        with image.open(io.BytesIO(content), formats=FORMATS) as picture:
            columns, rows = picture.size
            if columns * rows > MOST_PIXELS:
                raise _too_many_pixels(where, f"{columns:,} x {rows:,} pixels")
            yield picture
    except CorpusError:
        raise
    except image.DecompressionBombError:
        raise _too_many_pixels(where, f"more than {2 * MOST_PIXELS:,} pixels") from None
    except image.UnidentifiedImageError:
        raise CorpusError(where, f"not a picture in a known format ({', '.join(FORMATS)}); convert it") from None
    except Exception as error:  # decoders raise errors of many types for damaged files
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise CorpusError(where, f"a damaged picture ({reason}); replace the file") from None


def read_picture_file(path: str | Path, settings: PictureSettings) -> Pixels:
    """Read a picture from a file, like `read_picture`."""
    with opened(path, unpacked=False) as file:
        return read_picture(file.read(MOST_BYTES + 1), str(path), settings)


def read_array(pixels: NDArray[Any], where: str, settings: PictureSettings) -> Pixels:
    """Make an array of bytes [Y, X] (gray) or [Y, X, 3] or [Y, X, 4] (with alpha) the size of the settings."""
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or 0 in pixels.shape or pixels.shape[2:] not in _DEPTHS:
        shape = f"{pixels.dtype} of the shape {list(pixels.shape)}"
        raise CorpusError(where, f"an array of pixels must be uint8 [Y, X], [Y, X, 3] or [Y, X, 4], not {shape}")
    if pixels.shape[0] * pixels.shape[1] > MOST_PIXELS:
        raise _too_many_pixels(where, f"{pixels.shape[1]:,} x {pixels.shape[0]:,} pixels")
    return _fit(_flatten(_prepare_pillow().fromarray(pixels)), settings)


_DEPTHS = ((), (3,), (4,))


def to_png(pixels: Pixels) -> bytes:
    """Encode a picture [C, Y, X] as a PNG file."""
    channels_last = np.ascontiguousarray(pixels.transpose(1, 2, 0))
    buffer = io.BytesIO()
    _prepare_pillow().fromarray(channels_last.squeeze(2) if len(pixels) == 1 else channels_last).save(buffer, "PNG")
    return buffer.getvalue()


def to_data_url(pixels: Pixels) -> str:
    """A picture [C, Y, X] as a URL that holds the whole picture, for self-contained pages."""
    return "data:image/png;base64," + base64.b64encode(to_png(pixels)).decode()


@cache
def _prepare_pillow() -> Any:
    """Import the module `PIL.Image`, which is an optional library."""
    try:
        from PIL import Image
    except ImportError:
        raise SettingsError('reading pictures needs Pillow: pip install "regard[pictures]"') from None
    # Above twice this number Pillow itself refuses; below, its warning would only repeat the error of `read_picture`.
    Image.MAX_IMAGE_PIXELS = MOST_PIXELS
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    return Image


def _too_many_pixels(where: str, size: str) -> CorpusError:
    return CorpusError(where, f"{size} are too many (at most {MOST_PIXELS:,}); make the picture smaller")


def _too_many_bytes(where: str) -> CorpusError:
    return CorpusError(where, f"more than {MOST_BYTES >> 20} MB; make the picture smaller")


def _upright(picture: Any) -> Any:
    """The picture with the rotation of its EXIF data applied."""
    from PIL import ImageOps

    return ImageOps.exif_transpose(picture)


def _flatten(picture: Any) -> Any:
    """Convert a picture of any mode to RGB, with transparent parts in white."""
    image = _prepare_pillow()
    if picture.mode.startswith(("I", "F")):  # 16 or 32 bits per pixel: Pillow would cut off large values
        values = np.asarray(picture, np.float64)
        scale = 255 / 65535 if values.max(initial=0) > 255 else 1.0
        return image.fromarray((values * scale).clip(0, 255).astype(np.uint8)).convert("RGB")
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    with_alpha = picture.convert("RGBA")
    white = image.new("RGBA", with_alpha.size, "white")
    return image.alpha_composite(white, with_alpha).convert("RGB")


def _fit(picture: Any, settings: PictureSettings) -> Pixels:
    """Make an RGB picture the size of the settings: [C, Y, X]."""
    image = _prepare_pillow()
    height, width = settings.size
    columns, rows = picture.size
    box = None  # the part that is used
    inner = width, height
    if settings.fit == "pad":
        scale = min(width / columns, height / rows)
        inner = max(1, round(columns * scale)), max(1, round(rows * scale))
    elif settings.fit == "crop":
        scale = max(width / columns, height / rows)
        across, down = min(columns, width / scale), min(rows, height / scale)
        box = (columns - across) / 2, (rows - down) / 2, (columns + across) / 2, (rows + down) / 2
    if box is not None or picture.size != inner:
        picture = picture.resize(inner, image.Resampling.BICUBIC, box=box)
    if inner != (width, height):
        whole = image.new("RGB", (width, height), "white")
        whole.paste(picture, ((width - inner[0]) // 2, (height - inner[1]) // 2))
        picture = whole
    if settings.channels == 1:
        return np.asarray(picture.convert("L"), np.uint8)[None]
    return np.asarray(picture, np.uint8).transpose(2, 0, 1)


# ---------------------------------------------------------------------------------------------------------------------
# A folder or a ZIP file


class PictureSource:
    """The pictures of a folder or a ZIP file, by name. Use it in a `with` block."""

    def __init__(self, path: str | Path):
        """`path`: the folder or the ZIP file (`pictures.images`)."""
        self.path = Path(path)
        self._archive: zipfile.ZipFile | None = None
        self._names: dict[str, str] = {}
        if self.path.is_dir():
            return
        if not self.path.exists():
            beside = [one.name for one in self.path.parent.iterdir()] if self.path.parent.is_dir() else []
            raise CorpusError(path, f"no such folder or ZIP file{nearest(self.path.name, beside)}")
        try:
            self._archive = zipfile.ZipFile(self.path)
            members = [member.filename for member in self._archive.infolist() if not member.is_dir()]
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise CorpusError(path, f"neither a folder nor a ZIP file that can be read ({error})") from None
        tops = {name.partition("/")[0] for name in members if "/" in name and not name.startswith("__MACOSX/")}
        top = f"{tops.pop()}/" if len(tops) == 1 else ""  # of a packed folder, names in it are also accepted
        self._names = {name.removeprefix(top): name for name in members} | {name: name for name in members}

    @staticmethod
    def open(images: str) -> PictureSource:
        """The pictures that the setting `pictures.images` names: a folder, a ZIP file, or a built-in corpus."""
        if not corpus_of(images):
            return PictureSource(images)
        from regard.data.drawings import DrawingSource

        return DrawingSource(images)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._archive:
            self._archive.close()

    def find(self, name: str, where: str) -> str:
        """The normal form of `name`, which stands in the list at `where` ("captions.tsv:3"); an error if it is missing.

        Two names with the same normal form are the same picture.
        """
        path = PurePosixPath(name)
        outside = path.is_absolute() or ".." in path.parts or PureWindowsPath(name).drive or "\\" in name
        if outside or not path.name or "\0" in name:
            raise CorpusError(where, f'the name "{name}" is not inside {self.path}; name pictures relative to it')
        if self._archive:
            if str(path) in self._names:
                return self._names[str(path)]
        elif (self.path / path).is_file():
            return str(path)
        known = self._names if self._archive else self.names()
        raise CorpusError(where, f'there is no picture "{name}" in {self.path}{nearest(str(path), known)}')

    def read(self, name: str, where: str, settings: PictureSettings) -> Pixels:
        """Read the picture with this name (see `find`), like `read_picture`."""
        return read_picture(self._content(self.find(name, where), where), f"{where}: {name}", settings)

    def size(self, name: str, where: str) -> tuple[int, int]:
        """Height and width in pixels of the picture with this name, like `read_size`."""
        return read_size(self._content(self.find(name, where), where), f"{where}: {name}")

    def names(self) -> list[str]:
        """The names of all files, sorted; a folder is searched with its subfolders."""
        if self._archive:
            return sorted(set(self._names.values()))
        return sorted(str(one.relative_to(self.path).as_posix()) for one in self.path.rglob("*") if one.is_file())

    def _content(self, name: str, where: str) -> bytes:
        if not self._archive:
            with opened(self.path / name, unpacked=False) as file:
                return file.read(MOST_BYTES + 1)
        try:
            with self._archive.open(name) as member:
                return member.read(MOST_BYTES + 1)  # the size in the ZIP file may be wrong
        except Exception as error:  # RuntimeError: encrypted; others: damaged, or packed in an unknown way
            raise CorpusError(where, f"{name} cannot be read from {self.path} ({error}); pack it again") from None


# ---------------------------------------------------------------------------------------------------------------------
# Stored for training


class PictureStore:
    """Pictures of one size in a memory-mapped file. Made by `write_pictures` and `open_pictures`."""

    def __init__(self, path: Path, pixels_NCYX: NDArray[np.uint8]):
        self.path, self._pixels_NCYX = path, pixels_NCYX

    def __len__(self) -> int:
        return len(self._pixels_NCYX)

    def __getitem__(self, index: Any) -> NDArray[np.uint8]:
        """A picture [C, Y, X], or those with the indices in an array: [B, C, Y, X]."""
        return self._pixels_NCYX[index]

    def close(self) -> None:
        """Release the memory-mapped file, so that Windows can remove it. No picture can be read afterwards."""
        self._pixels_NCYX = np.empty((0, 1, 1, 1), np.uint8)


def write_pictures(path: Path, pictures: Iterable[Pixels], count: int, settings: PictureSettings) -> None:
    """Write `count` pictures of the size of the settings into a new file (.npy), one after another."""
    shape = (count, settings.channels, *settings.size)
    stored = np.lib.format.open_memmap(path, "w+", np.uint8, shape=shape)
    for place, pixels in enumerate(pictures):
        stored[place] = pixels
    stored.flush()


def open_pictures(path: Path, settings: PictureSettings) -> PictureStore:
    """Open a file that `write_pictures` wrote. A damaged file, or one with another size of pictures, is an error."""
    remedy = "remove its folder to build the data again"
    try:
        pixels = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise RunError(f"{path}: cannot read the pictures ({error}); {remedy}") from None
    if pixels.dtype != np.uint8 or pixels.shape[1:] != (settings.channels, *settings.size):
        raise RunError(f"{path}: the pictures do not have the size in the recipe; {remedy}")
    return PictureStore(path, pixels.view(np.ndarray))
