"""The page of `regard info --roofline` in a browser."""

from __future__ import annotations

from regard.training.cost import StepCost
from regard.training.operator_ledger import OperatorCall, Touch
from regard.training.roofline import MachineRoofs, report_costs
from tests.surface.conftest import Show

MACHINE = MachineRoofs(2, 1e11, ((1, 1e10), (256, 1e11)), ((2**19, 5e10), (2**28, 1e10)), 3e-6, 4e-6)


def step(kind: str, flops: float, size: int) -> StepCost:
    calls = (OperatorCall("mm", flops, (Touch(size, None, fresh=False),), 64), OperatorCall("view", 0.0, ()))
    return StepCost(kind, 32, 5, calls, 4096 if kind == "training" else 0, 1000)


def test_every_step_has_a_dot_a_row_and_its_operators(show_page: Show) -> None:
    costs = [step("training", 2e9, 10**7), step("decoding", 1e6, 10**6), step("sentence", 1e8, 10**8)]
    data = {"title": "<b>toy</b>", "arch": "<b>toy</b>", "length": 25, **report_costs(costs, MACHINE)}
    page = show_page("roofline", data)
    assert page.locator("h1").inner_text() == "<b>toy</b>"
    assert page.locator("section h2").all_inner_texts() == ["Roofline", "Costs", "Operators", "Machine"]
    assert page.locator(".roofline circle").count() == 3
    rows = page.locator("section[aria-labelledby=costs] tbody tr")
    assert rows.count() == 3
    assert rows.nth(1).locator("td").last.inner_text() == "memory"
    assert "2.0 billion" in rows.nth(0).inner_text() or "2 billion" in rows.nth(0).inner_text()
    assert page.locator("details").count() == 3
