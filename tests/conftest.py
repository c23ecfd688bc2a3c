"""What every test shares: one thread, a fixed seed, costs that are counted once, patience with a busy processor."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

# Set before torch is first imported. Toy tensors gain nothing from a second thread, and test processes that share the
# cores lose several times over.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("regard", deadline=None)
settings.load_profile("regard")


def pytest_collection_finish() -> None:
    """What has been imported and collected stays to the end: garbage collection need not go through it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Torch's generator starts each test in the same state, whatever ran before.

    That of the CPU: `torch.manual_seed` also keeps a trace of the stack for each kind of GPU, which takes its time.
    """
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _costs_are_counted_once() -> Iterator[None]:
    """Trainings count the operations of a model, which takes longer than a dozen steps of a small one.

    Models of the same layers and sizes cost the same. Tests of the counting itself call `flops.count_cost`.
    """
    if "regard.tasks.train" not in sys.modules:
        yield
        return
    from regard.tasks import dataset, training
    from regard.training.flops import count_cost

    counted: dict[tuple[Any, ...], Any] = {}

    def count_once(model: Any) -> Any:
        sizes = [(name, tensor.shape) for name, tensor in model.state_dict().items()]
        key = (repr(model), *sizes)
        if key not in counted:
            counted[key] = count_cost(model)
        return counted[key]

    with pytest.MonkeyPatch.context() as patch:
        for module in (dataset, training):
            patch.setattr(module, "count_cost", count_once)
        yield
