"""Reading pictures: all kinds of files, bad files, folders and ZIP files; the store; augmentation."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from regard.config import PictureSettings
from regard.data.augmentation import augment, to_input
from regard.data.pictures import (
    PictureSource,
    open_pictures,
    read_picture,
    read_picture_file,
    to_data_url,
    to_png,
    write_pictures,
)
from regard.errors import CorpusError, RunError, SettingsError

SMALL = PictureSettings(size=(8, 16))


def encode(picture: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def png_header(width: int, height: int) -> bytes:
    """A PNG file of the given size without any pixels."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(b""))]
    body = [
        struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data)) for tag, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)


def corner(pixels: np.ndarray) -> list[int]:
    return [int(value) for value in pixels[:, 0, 0]]


def test_a_wide_picture_gets_white_edges_or_loses_its_sides() -> None:
    tall = encode(Image.new("RGB", (4, 8), "red"))
    padded = read_picture(tall, "a.png", SMALL)
    assert padded.shape == (3, 8, 16)
    assert padded.dtype == np.uint8
    assert corner(padded) == [255, 255, 255]
    assert padded[:, 0, 6:10].min(1).tolist() == [255, 0, 0]
    for fit in ("crop", "stretch"):
        assert corner(read_picture(tall, "a.png", PictureSettings(size=(8, 16), fit=fit))) == [255, 0, 0]


@pytest.mark.parametrize(
    ("picture", "kind", "expected"),
    [
        (Image.new("RGBA", (16, 8), (255, 0, 0, 0)), "PNG", [255, 255, 255]),  # transparent
        (Image.new("RGBA", (16, 8), (255, 0, 0, 51)), "PNG", [255, 204, 204]),  # a fifth of red over white
        (Image.new("LA", (16, 8), (0, 51)), "PNG", [204, 204, 204]),
        (Image.new("CMYK", (16, 8), (0, 255, 255, 0)), "JPEG", [254, 0, 0]),
        (Image.new("1", (16, 8), 1), "PNG", [255, 255, 255]),
        (Image.new("I;16", (16, 8), 65535), "PNG", [255, 255, 255]),
        (Image.new("L", (1, 1), 7), "PNG", [255, 255, 255]),  # padded to both sides
        (Image.new("RGB", (16, 8), (1, 2, 3)), "BMP", [1, 2, 3]),
        (Image.new("RGB", (16, 8), "blue"), "WEBP", [0, 0, 255]),
    ],
)
def test_every_mode_becomes_rgb_over_white(picture: Image.Image, kind: str, expected: list[int]) -> None:
    found = corner(read_picture(encode(picture, kind, **({"lossless": True} if kind == "WEBP" else {})), "a", SMALL))
    assert max(abs(one - other) for one, other in zip(found, expected, strict=True)) <= 2


def test_one_pixel_is_scaled_up() -> None:
    assert read_picture(encode(Image.new("L", (1, 1), 7)), "a", SMALL)[:, 4, 8].tolist() == [7, 7, 7]


def test_rotation_animation_and_gray() -> None:
    sideways = Image.new("RGB", (16, 8), "black")
    sideways.paste("red", (0, 0, 8, 8))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate by 90 degrees clockwise
    turned = read_picture(encode(sideways, "JPEG", exif=exif), "a", PictureSettings(size=(16, 8)))
    assert turned[0, 2].min() > 200  # red on top
    assert turned[0, 13].max() < 60
    frames = [Image.new("P", (16, 8), 0), Image.new("P", (16, 8), 0)]
    frames[0].putpalette([0, 255, 0])
    frames[1].putpalette([255, 0, 0])
    animated = encode(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert corner(read_picture(animated, "a", SMALL)) == [0, 255, 0]
    gray = read_picture(encode(Image.new("RGB", (16, 8), "red")), "a", PictureSettings(size=(8, 16), channels=1))
    assert gray.shape == (1, 8, 16)
    assert corner(gray) == [76]  # 0.299 of red (ITU-R BT.601)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not a picture in a known format"),
        (b"GIF89a", "a damaged picture|not a picture"),
        (b"This is text.", r"not a picture in a known format \(PNG, JPEG, GIF, WEBP, BMP\); convert it"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "not a picture"),  # would start Ghostscript
        (encode(Image.effect_noise((99, 99), 50))[:150], "a damaged picture"),
        (png_header(20_000, 20_000), r"too many \(at most 64,000,000\); make the picture smaller"),
        (png_header(9_000, 9_000), r"9,000 x 9,000 pixels are too many"),
        (png_header(2**31 - 1, 2**31 - 1), "too many"),
    ],
)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_bad_files_are_one_clear_line(content: bytes, problem: str) -> None:
    with pytest.raises(CorpusError, match=f"^list.tsv:3: a.png: .*({problem})") as caught:
        read_picture(content, "list.tsv:3: a.png", SMALL)
    assert "\n" not in str(caught.value)


def test_a_bomb_of_bytes_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("regard.data.pictures.MOST_BYTES", 1 << 20)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.png", bytes(2 << 20))
    with PictureSource(tmp_path / "a.zip") as source, pytest.raises(CorpusError, match=r"more than 1 MB"):
        source.read("a.png", "l:1", SMALL)


@pytest.fixture(params=["folder", "zip", "packed folder"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> PictureSource:
    content = encode(Image.new("RGB", (16, 8), "red"))
    folder = tmp_path / "pictures"
    (folder / "sub").mkdir(parents=True)
    for name in ("one.png", "sub/two.png"):
        (folder / name).write_bytes(content)
    (tmp_path / "secret.png").write_bytes(content)
    if request.param == "folder":
        return PictureSource(folder)
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        top = "pictures/" if request.param == "packed folder" else ""
        archive.writestr(f"{top}one.png", content)
        archive.writestr(f"{top}sub/two.png", content)
        archive.writestr("../secret.png" if not top else f"{top}x/../../secret.png", content)
    return PictureSource(tmp_path / "p.zip")


def test_pictures_of_folders_and_archives(source: PictureSource) -> None:
    with source:
        for name in ("one.png", "./one.png", "sub/two.png"):
            assert corner(source.read(name, "l:1", SMALL)) == [255, 0, 0]
        assert source.find("./one.png", "l:1") == source.find("one.png", "l:1")
        with pytest.raises(
            CorpusError, match=r'^l:2: there is no picture "onne\.png" in .*; did you mean "one\.png"\?'
        ):
            source.read("onne.png", "l:2", SMALL)
        for name in ("../secret.png", "x/../../secret.png", "/etc/passwd", "C:\\a.png", "..\\secret.png", "", "a\0b"):
            with pytest.raises(CorpusError, match=r"l:2: the name .* is not inside"):
                source.read(name, "l:2", SMALL)


def test_what_is_no_folder_and_no_archive(tmp_path: Path) -> None:
    (tmp_path / "text.zip").write_text("text")
    with pytest.raises(CorpusError, match=r"text\.zip: neither a folder nor a ZIP file that can be read"):
        PictureSource(tmp_path / "text.zip")
    with pytest.raises(CorpusError, match=r'tex\.zip: no such folder or ZIP file; did you mean "text\.zip"\?'):
        PictureSource(tmp_path / "tex.zip")
    (tmp_path / "a.png").write_text("text")
    with pytest.raises(CorpusError, match=r"a\.png: not a picture"):
        read_picture_file(tmp_path / "a.png", SMALL)


def test_the_store_keeps_pictures_exactly(tmp_path: Path) -> None:
    pictures = np.random.default_rng(1).integers(0, 256, (5, 3, 8, 16), np.uint8)
    write_pictures(tmp_path / "pictures.npy", iter(pictures), 5, SMALL)
    store = open_pictures(tmp_path / "pictures.npy", SMALL)
    assert len(store) == 5
    assert (store[np.array([3, 1, 1])] == pictures[[3, 1, 1]]).all()
    store.close()
    with pytest.raises(RunError, match="size in the recipe"):
        open_pictures(tmp_path / "pictures.npy", PictureSettings())
    (tmp_path / "pictures.npy").write_bytes((tmp_path / "pictures.npy").read_bytes()[:-7])
    with pytest.raises(RunError, match="cannot read the pictures"):
        open_pictures(tmp_path / "pictures.npy", SMALL)
    assert (read_picture(to_png(pictures[0]), "a", SMALL) == pictures[0]).all()
    assert to_data_url(pictures[0, :1]).startswith("data:image/png;base64,iVBOR")


# ---------------------------------------------------------------------------------------------------------------------
# Augmentation


def random_pictures() -> torch.Tensor:
    return torch.randint(0, 256, (4, 3, 8, 16), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)


def test_input_is_between_minus_one_and_one() -> None:
    ends = to_input(torch.tensor([0, 255], dtype=torch.uint8), PictureSettings())
    assert ends.tolist() == [-1.0, 1.0]


def test_augmentation_depends_on_the_seed_alone() -> None:
    pixels, every = random_pictures(), PictureSettings(shift=0.1, zoom=0.2, rotation=9, flip=0.5, color=0.2, erase=0.5)
    first = augment(pixels, every, 7)
    assert torch.equal(first, augment(pixels, every, 7))
    assert not torch.equal(first, augment(pixels, every, 8))
    assert first.abs().max() <= 1.0
    assert not torch.equal(first[0], augment(pixels[:1].repeat(4, 1, 1, 1), every, 7)[1])  # each has its own change
    assert torch.equal(augment(pixels, every, 7, strength=0.0), to_input(pixels, PictureSettings()))
    assert torch.equal(augment(pixels, PictureSettings(), 7), to_input(pixels, PictureSettings()))


def test_flip_exchanges_left_and_right_exactly() -> None:
    pixels = random_pictures()
    flipped = augment(pixels, PictureSettings(flip=0.999999), 1)
    assert torch.allclose(flipped, to_input(pixels, PictureSettings()).flip(3), atol=1e-5)


def test_rotation_keeps_the_shape_of_a_wide_picture() -> None:
    """A bar keeps its area and its length when it is turned, although the picture is not square."""
    pixels = torch.zeros(64, 3, 16, 32, dtype=torch.uint8)
    pixels[:, :, 6:10, 12:20] = 255  # 4 high, 8 wide
    turned = augment(pixels, PictureSettings(rotation=90), 3) > 0
    areas = turned[:, 0].sum((1, 2))
    assert areas.min() >= 24  # of 32: an error in the scale of an axis halves or doubles it
    assert areas.max() <= 40
    tallest = turned[:, 0].any(2).sum(1).max()
    assert tallest >= 8  # some are upright


def test_shift_and_erase_change_what_they_say() -> None:
    white = torch.full((200, 3, 8, 16), 255, dtype=torch.uint8)
    assert torch.allclose(augment(white, PictureSettings(shift=0.2, zoom=0.2), 1), torch.ones(1))  # edges continue
    erased = augment(white, PictureSettings(erase=0.5), 1)
    share = (erased == 0).any(1).flatten(1).any(1).float().mean()
    assert 0.4 < share < 0.6
    column = torch.zeros(300, 3, 8, 16, dtype=torch.uint8)
    column[:, :, :, 8:] = 255
    edges = (augment(column, PictureSettings(shift=0.25), 1)[:, 0, 4] > 0).sum(1)  # width of the white half
    assert edges.min() == 4
    assert edges.max() == 12


def test_settings_of_pictures_are_checked() -> None:
    with pytest.raises(SettingsError, match=r"pictures\.size must be multiples of pictures\.patch_size = 8"):
        PictureSettings(size=(60, 64))
    with pytest.raises(SettingsError, match=r"pictures\.convolutions needs a patch_size of 2, 4, 8"):
        PictureSettings(size=(60, 60), patch_size=6)
    assert PictureSettings(size=(60, 60), patch_size=6, convolutions=0).sizes == {
        "picture_channels": 3, "picture_height": 60, "picture_width": 60, "patch_size": 6,
    }  # fmt: skip
