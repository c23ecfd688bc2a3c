"""In which precision matrices are multiplied; weights, norms, softmax and sums stay in float32.

A GPU multiplies in bfloat16 several times as fast. Of CPUs some do, with instructions of their own, and some take many
times as long, so it is measured there.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from regard.config import Train


def product_type(settings: Train, device: torch.device) -> torch.dtype:
    """What was asked for; "auto" asks the device."""
    low = settings.precision == "bfloat16"
    if settings.precision == "auto":
        low = device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if low else torch.float32


def autocast(settings: Train, device: torch.device) -> AbstractContextManager[Any]:
    """Inside, matrix products have that type."""
    kind = product_type(settings, device)
    return nullcontext() if kind == torch.float32 else torch.autocast(device.type, kind)
