"""Augmentation: random changes of training pictures, as tensors; and pictures as input of a network.

All random numbers of a batch come from one seed, so a batch depends only on its position in the stream of training.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.config import PictureSettings


def to_input(pixels_BCYX: Tensor, settings: PictureSettings) -> Tensor:
    """Pictures of bytes as input of a network: from -1 (black) to 1 (white), then normalized as the settings say."""
    return _normalize(_scale(pixels_BCYX), settings)


def _scale(pixels_BCYX: Tensor) -> Tensor:
    return pixels_BCYX.to(torch.float32) / 127.5 - 1.0


def _normalize(x_BCYX: Tensor, settings: PictureSettings) -> Tensor:
    return (x_BCYX - settings.mean) / settings.deviation


def augment(pixels_BCYX: Tensor, settings: PictureSettings, seed: int, strength: float = 1.0) -> Tensor:
    """Change pictures of bytes at random, as the settings say, and return them as input of a network.

    `strength`: factor on the size or the probability of all changes but `flip`. Without changes, the result is exactly
    `to_input`. Every picture gets its own changes.
    """
    x_BCYX = _scale(pixels_BCYX)
    if not strength:
        return _normalize(x_BCYX, settings)
    chance = torch.Generator().manual_seed(seed)
    if settings.shift or settings.zoom or settings.rotation or settings.flip:
        x_BCYX = _move(x_BCYX, settings, strength, chance)
    if settings.color:
        x_BCYX = _recolor(x_BCYX, settings.color * strength, chance)
    if settings.erase:
        x_BCYX = _erase(x_BCYX, settings.erase * strength, chance)
    return _normalize(x_BCYX, settings)


def _uniform(count: int, largest: float, chance: torch.Generator) -> Tensor:
    """Random numbers [count] between -largest and largest."""
    return (2 * torch.rand(count, generator=chance) - 1) * largest


def _move(x_BCYX: Tensor, settings: PictureSettings, strength: float, chance: torch.Generator) -> Tensor:
    """Shift, scale, rotate and flip, in one interpolation. What comes in at an edge continues the edge."""
    count, _, height, width = x_BCYX.shape
    zoom_B = torch.exp(_uniform(count, -math.log(1 - settings.zoom * strength), chance))
    angle_B = _uniform(count, math.radians(settings.rotation * strength), chance)
    across_B, down_B = (2 * _uniform(count, settings.shift * strength, chance) for _ in range(2))  # the width is 2
    mirror_B = 1.0 - 2.0 * (torch.rand(count, generator=chance) < settings.flip)
    cos_B, sin_B = torch.cos(angle_B) / zoom_B, torch.sin(angle_B) / zoom_B
    shape = height / width  # the axes of the grid have the same length, those of the picture may not
    first_B3 = torch.stack([cos_B * mirror_B, sin_B * shape, across_B], 1)
    second_B3 = torch.stack([-sin_B * mirror_B / shape, cos_B, down_B], 1)
    grid_BYX2 = F.affine_grid(torch.stack([first_B3, second_B3], 1), list(x_BCYX.shape), align_corners=False)
    return F.grid_sample(x_BCYX, grid_BYX2, padding_mode="border", align_corners=False)


def _recolor(x_BCYX: Tensor, largest: float, chance: torch.Generator) -> Tensor:
    """Change brightness, contrast and saturation, and cut off what is darker than black or brighter than white."""
    factors_3B = torch.stack([_uniform(len(x_BCYX), largest, chance) + 1 for _ in range(3)])
    brightness_B111, contrast_B111, saturation_B111 = factors_3B.view(3, -1, 1, 1, 1)
    x_BCYX = (x_BCYX + 1) * brightness_B111 - 1
    mean_B111 = x_BCYX.mean((1, 2, 3), keepdim=True)
    x_BCYX = mean_B111 + (x_BCYX - mean_B111) * contrast_B111
    gray_B1YX = x_BCYX.mean(1, keepdim=True)
    return (gray_B1YX + (x_BCYX - gray_B1YX) * saturation_B111).clamp(-1, 1)


def _erase(x_BCYX: Tensor, probability: float, chance: torch.Generator) -> Tensor:
    """Replace a rectangle of 1/50 to 1/5 of the area by gray (Zhong et al. 2020)."""
    count, _, height, width = x_BCYX.shape
    area_B, ratio_B, top_B, left_B, drawn_B = torch.rand(5, count, generator=chance)
    area_B, ratio_B = 0.02 + 0.18 * area_B, torch.exp((2 * ratio_B - 1) * math.log(2.0))
    tall_B = torch.sqrt(area_B * ratio_B) * height
    wide_B = torch.sqrt(area_B / ratio_B) * width
    rows_Y, columns_X = torch.arange(height), torch.arange(width)
    top_B, left_B = top_B * (height - tall_B), left_B * (width - wide_B)
    in_rows_BY = (rows_Y >= top_B[:, None]) & (rows_Y < (top_B + tall_B)[:, None])
    in_columns_BX = (columns_X >= left_B[:, None]) & (columns_X < (left_B + wide_B)[:, None])
    hidden_BYX = in_rows_BY[:, :, None] & in_columns_BX[:, None, :] & (drawn_B < probability)[:, None, None]
    return x_BCYX.masked_fill(hidden_BYX[:, None], 0.0)
