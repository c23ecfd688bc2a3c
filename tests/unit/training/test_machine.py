"""What is measured of the machine, and in what order."""

import pytest
import torch

from regard.training import machine
from regard.training.machine import SLOW, look_at_machine, matmul_peak


@pytest.fixture
def products(monkeypatch):
    """Sizes of the products that are measured; each is as fast as the list's last entry says."""
    asked, speed = [], [2 * SLOW]

    def measured(size, device, kind, seconds):
        asked.append(size)
        return speed[-1] * (2 if kind == torch.bfloat16 else 1)

    monkeypatch.setattr(machine, "_best_product", measured)
    matmul_peak.cache_clear()
    yield asked, speed
    matmul_peak.cache_clear()


def test_a_large_product_is_measured_where_a_small_one_is_fast(products):
    asked, speed = products
    assert look_at_machine("cpu").peak == speed[-1]
    assert asked == [256, 1024] * 2
    assert look_at_machine("cpu").short_gain == 2.0
    assert asked == [256, 1024] * 2  # measured once


def test_what_is_slow_is_not_waited_for(products):
    asked, speed = products
    speed.append(SLOW / 100)
    assert matmul_peak(kind=torch.bfloat16) == SLOW / 50
    assert asked == [256]


def test_a_product_counts_its_operations(monkeypatch):
    clock = iter([0.0, 0.0, 0.0, 0.5, 0.6, 0.6, 0.8, 1.5])  # until; and three looks a round, the last one alone
    monkeypatch.setattr(machine.time, "perf_counter", lambda: next(clock))
    assert machine._best_product(10, "cpu", torch.float32, seconds=1.0) == pytest.approx(2000 / 0.2)


def test_the_machine_has_memory_and_cores():
    found = look_at_machine("cpu")
    assert found.cores >= 1
    assert found.memory > 1e6
    assert found.peak > 1e6
