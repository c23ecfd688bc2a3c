"""What every test shares: one thread, a fixed seed, patience with a busy processor."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import settings

# Set before torch is first imported. Toy tensors gain nothing from a second thread, and test processes that share the
# cores lose several times over.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("regard", deadline=None)
settings.load_profile("regard")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Torch's generator starts each test in the same state, whatever ran before."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
