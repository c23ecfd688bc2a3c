"""Inspections are bounded before they start, stop when nobody waits, and leave the rest of the server alone."""

import asyncio
import shutil
import time
from threading import Event

import pytest
import torch

import regard
from regard.run import Run
from regard.server.batching import TooLate
from regard.server.inspections import Stopped, share_weights, stop_when
from regard.server.runs import ServedRuns
from regard.server.settings import ServerSettings
from regard.tasks.api import FieldError, InspectRequest
from regard.tasks.translate import api
from tests.kept.make import KEPT

TEXT = "The old man sees the dog."


def serve(scenario, *names, folder=KEPT / "format-1", **options):
    """Serve runs, and close them after the scenario, which gets all of them."""

    async def whole():
        runs = ServedRuns.open([folder / name for name in names], ServerSettings(engine="torch", threads=2, **options))
        try:
            return await asyncio.wait_for(scenario(runs), 120)
        finally:
            await runs.close()

    return asyncio.run(whole())


def test_the_work_of_an_inspection_grows_with_the_square_of_its_tokens():
    run = Run.open(KEPT / "format-1" / "translate")

    def work(times, **more):
        return api.inspection_work(run, InspectRequest(text=" ".join([TEXT] * times), **more), 1000)

    assert 3 < work(20, skip_slow=False) / work(10, skip_slow=False) < 4.1
    assert work(10) < work(10, skip_slow=False) / 5
    assert work(10, target=TEXT) < work(10)


def test_an_inspection_that_is_too_expensive_is_refused_before_it_starts():
    async def scenario(runs):
        request = InspectRequest(text=TEXT, skip_slow=False)
        with pytest.raises(
            FieldError, match=r"about \S+ multiplications, and this server allows 1e\+03; send a shorter"
        ):
            await runs.served["translate"].inspect(request)
        assert runs.served["translate"].queues["inspect"].batches == 0

    serve(scenario, "translate", inspect_work=1e3)


def test_others_are_served_during_an_inspection_which_stops_when_nobody_waits(monkeypatch):
    stopped = Event()

    def endless(predictor, run, request):
        try:
            while True:
                torch.zeros(1).add(1)
        except Stopped:
            stopped.set()
            raise

    monkeypatch.setattr(api, "inspect", endless)

    async def scenario(runs):
        served = runs.served["translate"]
        inspection = asyncio.create_task(served.inspect(InspectRequest(text=TEXT), deadline=60))
        await asyncio.sleep(0.2)
        found = await served.handler.translate_texts([TEXT], align=True, deadline=60)
        assert found[0].alignment
        inspection.cancel()  # the client has left
        assert await asyncio.to_thread(stopped.wait, 30)
        stopped.clear()
        with pytest.raises(TooLate):
            await served.inspect(InspectRequest(text=TEXT), deadline=0.1)
        assert await asyncio.to_thread(stopped.wait, 30)

    serve(scenario, "translate")


def test_functions_of_torch_can_be_stopped():
    stopped = Event()
    with stop_when(stopped):
        weight = torch.ones(2, requires_grad=True)
        (weight * 2).sum().backward()
        stopped.set()
        with pytest.raises(Stopped):
            weight.sum()
    assert torch.equal(weight.grad, torch.full((2,), 2.0))


@pytest.mark.parametrize("name", ["translate", "chat", "classify", "tag"])
def test_a_copy_for_inspections_shares_the_weights(name):
    predictor = regard.load(KEPT / "format-1" / name)
    copied = share_weights(predictor)
    one, other = ((found.translator if name == "chat" else found).model for found in (predictor, copied))
    assert one is not other
    assert all(a is b for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert not set(map(id, one.modules())) & set(map(id, other.modules()))


@pytest.mark.parametrize("name", ["classify", "tag"])
def test_a_copy_inspects_as_the_run_itself(name):
    run = Run.open(KEPT / "format-1" / name)
    own = regard.load(run)
    inspect = regard.tasks.part(name, "api").inspect

    async def scenario(runs):
        return await runs.served[name].inspect(InspectRequest(text=TEXT))

    assert serve(scenario, name) == inspect(own, run, InspectRequest(text=TEXT))


# ---------------------------------------------------------------------------------------------------------------------
# Files that change


def retrain(folder):
    """Change the weights of a run, as another training would."""
    run = Run.open(folder)
    network = run.load_network()
    run.write_weights({name: weight + 1 for name, weight in network.named_parameters()})


def test_changed_files_are_followed_whole(tmp_path, caplog):
    copy = shutil.copytree(KEPT / "format-1" / "classify", tmp_path / "classify")

    async def scenario(runs):
        before = runs.served["classify"]
        retrain(copy)
        following = asyncio.create_task(runs.follow(every=0.05))
        until = time.monotonic() + 60
        while runs.served["classify"] is before and time.monotonic() < until:
            await asyncio.sleep(0.05)
        after = runs.served["classify"]
        assert after.about["generation"] != before.about["generation"]
        weights = after.predictor.model.state_dict().values(), Run.open(copy).load_network().state_dict().values()
        assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True))
        (copy / "recipe.toml").write_text("broken = ")
        while "cannot be opened again" not in caplog.text and time.monotonic() < until:
            await asyncio.sleep(0.05)
        following.cancel()
        assert runs.served["classify"] is after  # goes on with what it has

    serve(scenario, "classify", folder=tmp_path)


def test_a_model_is_never_mixed_with_other_weights(tmp_path):
    pytest.importorskip("ctranslate2")
    copy = shutil.copytree(KEPT / "format-1" / "translate", tmp_path / "translate")

    async def scenario():
        runs = ServedRuns.open([copy], ServerSettings(engine="ctranslate2", threads=1))
        try:
            served = runs.served["translate"]
            retrain(copy)  # CTranslate2 still has the weights from before; torch has none yet
            with pytest.raises(regard.errors.RunError, match="has changed since it was opened"):
                await served.handler.translate_texts([TEXT], align=True)
            await runs.reload()
            assert (await runs.served["translate"].handler.translate_texts([TEXT], align=True))[0].alignment
        finally:
            await runs.close()

    asyncio.run(scenario())
