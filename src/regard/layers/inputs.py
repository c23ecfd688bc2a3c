"""Inputs of encoders other than tokens: frames (sequences of vectors) and pictures, as patches or through convolutions.

An encoder reads a sequence of vectors [B, S, D]. For tokens, an embedding table computes it. `Frames` and `Pictures`
describe other inputs, and `input_layer` builds the layer that computes the sequence from them:

    Frames(width)               [B, S, F]     a linear map of every frame
    Pictures(channels, ...)     [B, C, Y, X]  pixels; a linear map of every square patch (Dosovitskiy et al. 2021), or
                                              convolutions that halve height and width until a patch is one vector

The places of a picture are numbered row by row, and have positional encodings in two dimensions
(positional_encoding.py). A batch has the values of frames or pixels in the field where other batches have token ids
(`ids_BS`, `ids_BUS` or `ids_BTS`), with more axes; its mask is that of the sequence of vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import ModelError
from regard.layers.init import glorot


class Frames(NamedTuple):
    """An input of vectors: S frames of `width` numbers each, [B, S, F]."""

    width: int

    @property
    def grid(self) -> None:
        """Frames have positions in one dimension."""
        return None

    def example(self, axes: str, shape: tuple[int, ...]) -> SimpleNamespace:
        """A small input of zeros, like `models.base.example_input` for tokens; `shape` is that of the token ids."""
        places = shape[:2] if axes == "BTS" else shape  # a tagger reads a frame like a word of one piece
        return _zeros(axes, (*places, self.width), places)


class Pictures(NamedTuple):
    """An input of pictures of one size, [B, C, Y, X], divided into square patches. Sizes are in pixels."""

    channels: int
    height: int
    width: int
    patch: int
    """Height and width of a patch."""
    convolutions: int = 0
    """Number of convolutions between two halvings of the picture; 0: no convolutions, a linear map of every patch."""

    @property
    def grid(self) -> tuple[int, int]:
        """Number of rows and columns of patches."""
        return self.height // self.patch, self.width // self.patch

    def example(self, axes: str, shape: tuple[int, ...]) -> SimpleNamespace:
        """A small input of zeros, like `Frames.example`; its length is always the number of patches."""
        rows, columns = self.grid
        return _zeros(axes, (*shape[:-1], self.channels, self.height, self.width), (*shape[:-1], rows * columns))


Input = int | Frames | Pictures
"""What an encoder reads: tokens of a vocabulary of this size, frames, or pictures."""


def _zeros(axes: str, shape: tuple[int, ...], places: tuple[int, ...]) -> SimpleNamespace:
    """A batch of zeros; `places`: the axes of its mask, without the one for the pieces of a word."""
    mask = torch.ones(*places, *(1,) * (axes == "BTS"), dtype=torch.bool, device="cpu")
    return SimpleNamespace(**{f"ids_{axes}": torch.zeros(shape, device="cpu"), f"mask_{axes}": mask})


PICTURE_SIZES = {
    "picture_channels": "channels",
    "picture_height": "height",
    "picture_width": "width",
    "patch_size": "patch",
    "convolutions": "convolutions",
}
"""Names of the sizes of pictures, as given to `models.build`, and the fields of `Pictures`."""


def take_input(sizes: Mapping[str, int]) -> tuple[Input | None, dict[str, int]]:
    """Find the sizes of frames ("frame_width") or of pictures (`PICTURE_SIZES`); return the input and the other sizes.

    The input is None if there are no such sizes.
    """
    own = {"frame_width", *PICTURE_SIZES} & sizes.keys()
    others = {name: size for name, size in sizes.items() if name not in own}
    if not own:
        return None, others
    if own == {"frame_width"}:
        return Frames(sizes["frame_width"]), others
    missing = PICTURE_SIZES.keys() - own - {"convolutions"}
    if missing or "frame_width" in own:
        wrong = f"missing {sorted(missing)[0]}" if missing else "frame_width does not belong to pictures"
        raise ModelError(f"the sizes of the input do not fit: {wrong}")
    return Pictures(**{PICTURE_SIZES[name]: sizes[name] for name in own}), others


class FrameInput(nn.Module):
    """A linear map of every frame, [..., F] to [..., D]."""

    def __init__(self, frames: Frames, width: int):
        super().__init__()
        self.width = width
        self.map = glorot(nn.Linear(frames.width, width))

    def forward(self, x_BSF: Tensor) -> Tensor:
        return self.map(x_BSF.to(self.map.weight.device))


class PatchInput(nn.Module):
    """A linear map of every patch of a picture (Dosovitskiy et al. 2021), [B, C, Y, X] to [B, S, D]."""

    def __init__(self, pictures: Pictures, width: int):
        super().__init__()
        self.width, self.patch = width, pictures.patch
        self.map = glorot(nn.Linear(pictures.channels * pictures.patch**2, width))

    def forward(self, pixels_BCYX: Tensor) -> Tensor:
        x_BCYX = pixels_BCYX.to(self.map.weight.device)
        return self.map(F.unfold(x_BCYX, self.patch, stride=self.patch).transpose(1, 2))


class ConvolutionalInput(nn.Module):
    """A small convolutional network, [B, C, Y, X] to [B, S, D], with one vector per patch.

    Every stage halves height and width: the first one by a convolution of 4 x 4 pixels with stride 2, the others by a
    convolution of 3 x 3 pixels and the mean of 2 x 2 pixels. Then it has `convolutions` - 1 convolutions of 3 x 3
    pixels with residual connections. After each convolution come group norm and GELU. The number of features doubles
    from stage to stage, and is `width` after the last one.
    """

    GROUPS = 4

    def __init__(self, pictures: Pictures, width: int):
        super().__init__()
        stages = pictures.patch.bit_length() - 1
        if pictures.patch != 1 << stages or not stages:
            raise ModelError(f"convolutions need a patch size of 2, 4, 8, ... pixels, not {pictures.patch}")
        self.width, self.each, before = width, pictures.convolutions, pictures.channels
        self.convolutions, self.norms = nn.ModuleList(), nn.ModuleList()
        for stage in range(1, stages + 1):
            features = width if stage == stages else max(16, width >> (stages - stage)) // self.GROUPS * self.GROUPS
            for place in range(self.each):
                is_stem = stage == 1 and not place
                layer = nn.Conv2d(before, features, 4, stride=2, padding=1) if is_stem else None
                self.convolutions.append(layer or nn.Conv2d(before, features, 3, padding=1))
                self.norms.append(nn.GroupNorm(1 if features % self.GROUPS else self.GROUPS, features))
                before = features
        for convolution in self.convolutions:
            assert isinstance(convolution, nn.Conv2d)
            assert convolution.bias is not None
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
            nn.init.zeros_(convolution.bias)

    def forward(self, pixels_BCYX: Tensor) -> Tensor:
        x_BDYX = pixels_BCYX.to(next(self.parameters()).device)
        for place, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            update = F.gelu(norm(convolution(x_BDYX)))
            if place % self.each:
                x_BDYX = x_BDYX + update
            else:  # the first convolution of a stage
                x_BDYX = F.avg_pool2d(update, 2) if place else update
        return x_BDYX.flatten(2).transpose(1, 2)


def input_layer(source: Frames | Pictures, width: int) -> FrameInput | PatchInput | ConvolutionalInput:
    """Build the layer that computes vectors of `width` numbers from frames or pictures."""
    if isinstance(source, Frames):
        return FrameInput(source, width)
    rest = source.height % source.patch or source.width % source.patch
    if rest or not 0 < source.patch <= min(source.height, source.width):
        size = f"{source.height} x {source.width} pixels"
        raise ModelError(f"a picture of {size} cannot be divided into patches of {source.patch}; change the patch size")
    return ConvolutionalInput(source, width) if source.convolutions else PatchInput(source, width)
