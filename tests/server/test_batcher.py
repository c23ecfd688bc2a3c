"""The laws of the batcher: order, exactly once, fairness, bounds, deadlines, and going on whatever happens."""

import asyncio
import gc
import math
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.server import batching as batcher_module
from regard.server.batching import CLIENT, DECAY, DEFAULT_WAIT, Batcher, Closing, QueueFull, Throughput, TooLate

PATIENCE = 20
"""Seconds after which a test that hangs fails."""


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario, PATIENCE))


class Workshop:
    """Work that remembers its batches, fails when it meets something bad, and stands still until the gate is open."""

    def __init__(self, *, is_open=True):
        self.batches, self.gate = [], threading.Event()
        if is_open:
            self.gate.set()

    def __call__(self, items):
        self.batches.append(list(items))
        assert self.gate.wait(PATIENCE)
        if any("bad" in str(item) for item in items):
            raise ValueError(f"bad among {len(items)}")
        return [("done", item) for item in items]


def make_batcher(work, *, threads=1, pool=None, **limits):
    """A batcher with threads of its own."""
    return Batcher(work, pool=pool or ThreadPoolExecutor(threads), threads=threads, **limits)


async def settle():
    """Let everything that is ready to run do so."""
    for _ in range(10):
        await asyncio.sleep(0)


async def busy(batcher, workshop):
    """A batcher with every thread at work on an item of its own, and nothing waiting."""
    tasks = []
    for number in range(batcher.threads):
        tasks.append(asyncio.create_task(batcher.submit([f"first {number}"])))
        await settle()
    assert (batcher.working, batcher.waiting) == (batcher.threads, 0)
    return tasks


# ---------------------------------------------------------------------------------------------------------------------
# Results

requests = st.lists(st.tuples(st.integers(1, 12), st.sampled_from("xy"), st.booleans()), min_size=1, max_size=12)


@given(requests, st.integers(1, 6), st.integers(1, 3))
def test_every_item_is_answered_once_and_in_order(asked, size, threads):
    workshop = Workshop()

    async def scenario():
        batcher = make_batcher(workshop, size=size, most_waiting=1000, threads=threads)
        items = [[(place, key, number) for number in range(count)] for place, (count, key, _) in enumerate(asked)]
        found = await asyncio.gather(*(batcher.submit(some, key=some[0][1]) for some in items))
        assert found == [[("done", item) for item in some] for some in items]
        await batcher.close()
        return batcher, items

    batcher, items = run(scenario())
    assert sorted(chain(*workshop.batches)) == sorted(chain(*items))
    assert all(1 <= len(batch) <= size for batch in workshop.batches)
    assert all(len({key for _, key, _ in batch}) == 1 for batch in workshop.batches)
    assert (batcher.waiting, batcher.working, batcher.waiting_weight) == (0, 0, 0)
    assert batcher.items == sum(map(len, items))
    assert batcher.batches == len(workshop.batches)


@given(requests, st.integers(1, 6), st.integers(1, 2))
def test_a_failure_is_only_that_of_its_own_request(asked, size, threads):
    async def scenario():
        batcher = make_batcher(Workshop(), size=size, most_waiting=1000, threads=threads)
        items = [
            [f"{'bad' if spoilt and number == count - 1 else 'good'} {place}.{number}" for number in range(count)]
            for place, (count, _, spoilt) in enumerate(asked)
        ]
        found = await asyncio.gather(*map(batcher.submit, items), return_exceptions=True)
        for some, result, (_, _, spoilt) in zip(items, found, asked, strict=True):
            if spoilt:
                assert isinstance(result, ValueError)
                assert str(result) == "bad among 1"
            else:
                assert result == [("done", item) for item in some]
        assert await batcher.submit(["after"]) == [("done", "after")]
        assert batcher.waiting == 0
        await batcher.close()

    run(scenario())


def test_work_that_loses_a_result_fails_instead_of_mixing_them_up():
    async def scenario():
        batcher = make_batcher(lambda items: items[1:], size=4, most_waiting=10)
        with pytest.raises(RuntimeError, match="0 results for 1 items"):
            await batcher.submit(["a", "b"])
        await batcher.close()

    run(scenario())


def test_without_a_thread_to_work_in_requests_fail_instead_of_waiting():
    pool = ThreadPoolExecutor(1)
    pool.shutdown()

    async def scenario():
        batcher = make_batcher(Workshop(), size=2, most_waiting=10, pool=pool)
        with pytest.raises(RuntimeError, match="shutdown"):
            await batcher.submit("abc")
        await batcher.close()

    run(scenario())


def test_results_are_heard_as_they_are_done():
    heard = []

    async def scenario():
        batcher = make_batcher(Workshop(), size=2, most_waiting=10)
        await batcher.submit("abcde", on_result=lambda place, result: heard.append((place, result)))
        await batcher.close()

    run(scenario())
    assert sorted(heard) == [(place, ("done", letter)) for place, letter in enumerate("abcde")]


def test_nothing_is_done_for_nothing():
    async def scenario():
        batcher = make_batcher(Workshop(), size=2, most_waiting=10)
        assert await batcher.submit([]) == []
        assert batcher.batches == 0
        await batcher.close()

    run(scenario())


# ---------------------------------------------------------------------------------------------------------------------
# Who comes when


@pytest.mark.parametrize("threads", [1, 2])
def test_a_lone_request_starts_at_once(threads):
    workshop = Workshop()

    async def scenario():
        batcher = make_batcher(workshop, size=8, most_waiting=10, threads=threads)
        task = asyncio.create_task(batcher.submit(["alone"]))
        await asyncio.sleep(0)
        assert (batcher.waiting, batcher.working) == (0, 1)
        await task
        await batcher.close()

    run(scenario())


def test_while_one_is_worked_on_others_gather():
    workshop = Workshop(is_open=False)

    async def scenario():
        batcher = make_batcher(workshop, size=8, most_waiting=20)
        first = await busy(batcher, workshop)
        others = [asyncio.create_task(batcher.submit([letter])) for letter in "abcde"]
        await settle()
        assert batcher.waiting == 5
        workshop.gate.set()
        await asyncio.gather(*first, *others)
        await batcher.close()

    run(scenario())
    assert workshop.batches == [["first 0"], list("abcde")]


def test_threads_share_evenly():
    workshop = Workshop(is_open=False)

    async def scenario():
        batcher = make_batcher(workshop, size=8, most_waiting=20, threads=2)
        first = await busy(batcher, workshop)
        others = [asyncio.create_task(batcher.submit([number])) for number in range(10)]
        await settle()
        workshop.gate.set()
        await asyncio.gather(*first, *others)
        await batcher.close()

    run(scenario())
    sizes = [len(batch) for batch in workshop.batches]
    assert sizes[:3] == [1, 1, 6]  # of the 10 and the 1 still at work, half
    assert sum(sizes) == 12


def test_one_beside_a_long_batch_starts_when_nobody_else_comes():
    gate = threading.Event()

    def work(items):
        assert "slow" not in items or gate.wait(PATIENCE)
        return items

    async def scenario():
        batcher = make_batcher(work, size=8, most_waiting=20, threads=2)
        long = asyncio.create_task(batcher.submit(["slow"] * 3 + ["quick"] * 3))  # three for each thread
        while batcher.working != 3:
            await asyncio.sleep(0.001)
        assert await batcher.submit(["short"]) == ["short"]
        assert not long.done()
        gate.set()
        await long
        await batcher.close()

    run(scenario())


def test_a_long_request_does_not_starve_a_short_one():
    workshop = Workshop(is_open=False)

    async def scenario():
        batcher = make_batcher(workshop, size=4, most_waiting=1000)
        long = asyncio.create_task(batcher.submit([("long", number) for number in range(500)]))
        await settle()
        short = asyncio.create_task(batcher.submit(["short"]))
        await settle()
        workshop.gate.set()
        await short
        assert not long.done()
        await long
        await batcher.close()

    run(scenario())
    assert "short" in workshop.batches[1]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 50), st.sampled_from("xxxy")), min_size=1, max_size=15),
    st.integers(1, 6),
)
def test_nobody_waits_longer_than_for_those_ahead(asked, size):
    """Half of each batch goes by turns: with n requests of its key ahead, one is in batch n // half + 1 at the latest.

    Each batch of another key that comes between serves the request that is first in line then.
    """
    workshop = Workshop(is_open=False)

    async def scenario():
        batcher = make_batcher(
            workshop, size=size, most_waiting=1000, weigh=lambda item: item[2] if item[0] >= 0 else 1
        )
        first = asyncio.create_task(batcher.submit([(-1, 0, 1)], key="first"))
        await settle()
        tasks = [
            asyncio.create_task(batcher.submit([(place, number, weight) for number in range(count)], key=key))
            for place, (count, weight, key) in enumerate(asked)
        ]
        await settle()
        workshop.gate.set()
        await asyncio.gather(first, *tasks)
        await batcher.close()

    run(scenario())
    batches, half = workshop.batches[1:], math.ceil(size / 2)
    for place, (_, _, key) in enumerate(asked):
        started = next(number for number, batch in enumerate(batches) if any(item[0] == place for item in batch))
        own = [batch for batch in batches[: started + 1] if asked[batch[0][0]][2] == key]
        ahead = sum(other == key for _, _, other in asked[:place])
        assert len(own) <= ahead // half + 1
        assert started <= place


def test_like_weights_go_together():
    workshop = Workshop(is_open=False)

    async def scenario():
        batcher = make_batcher(
            workshop, size=4, most_waiting=100, weigh=lambda item: item if isinstance(item, int) else 1
        )
        first = await busy(batcher, workshop)
        others = [asyncio.create_task(batcher.submit([weight])) for weight in (10, 11, 100, 101, 12, 9)]
        await settle()
        workshop.gate.set()
        await asyncio.gather(*first, *others)
        await batcher.close()

    run(scenario())
    assert workshop.batches == [["first 0"], [10, 11, 12, 9], [100, 101]]


# ---------------------------------------------------------------------------------------------------------------------
# Bounds


def test_beyond_the_bound_requests_are_refused():
    workshop = Workshop(is_open=False)

    async def scenario():
        batcher = make_batcher(workshop, size=2, most_waiting=5)
        first = await busy(batcher, workshop)
        kept = asyncio.create_task(batcher.submit("abc"))
        await settle()
        with pytest.raises(QueueFull) as refusal:
            await batcher.submit("def")
        assert batcher.full_for() == 0  # for one more there is room
        assert refusal.value.retry_after == pytest.approx(DEFAULT_WAIT / 3)  # one of the three that wait must have gone
        also = asyncio.create_task(batcher.submit("gh"))
        await settle()
        assert (batcher.waiting, batcher.refused) == (5, 1)
        assert batcher.full_for() == pytest.approx(DEFAULT_WAIT / 5)
        workshop.gate.set()
        await asyncio.gather(*first, kept, also)
        await batcher.close()

    run(scenario())


def test_so_are_requests():
    workshop = Workshop(is_open=False)

    async def scenario():
        batcher = make_batcher(workshop, size=2, most_waiting=100, most_requests=2)
        first = await busy(batcher, workshop)
        kept = [asyncio.create_task(batcher.submit("ab")) for _ in range(2)]
        await settle()
        with pytest.raises(QueueFull):
            await batcher.submit("c")
        workshop.gate.set()
        await asyncio.gather(*first, *kept)
        await batcher.close()

    run(scenario())


def test_a_queue_that_was_full_stays_short_for_a_while(monkeypatch):
    monkeypatch.setattr(batcher_module, "FULL_SECONDS", 0.2)
    workshop = Workshop(is_open=False)

    async def scenario():
        batcher = make_batcher(workshop, size=8, most_waiting=100, most_requests=4)
        first = await busy(batcher, workshop)
        crowd = [asyncio.create_task(batcher.submit("a")) for _ in range(4)]
        await settle()
        workshop.gate.set()
        await asyncio.gather(*first, *crowd)
        workshop.gate.clear()
        again = await busy(batcher, workshop)
        some = [asyncio.create_task(batcher.submit("b")) for _ in range(2)]
        await settle()
        assert batcher.full_for() > 0
        with pytest.raises(QueueFull):
            await batcher.submit("c")
        await asyncio.sleep(0.3)
        assert batcher.full_for() == 0
        workshop.gate.set()
        await asyncio.gather(*again, *some)
        await batcher.close()

    run(scenario())


def test_weight_is_bounded_too():
    workshop = Workshop(is_open=False)

    async def scenario():
        batcher = make_batcher(workshop, size=2, most_waiting=100, most_weight=10, weigh=len)
        first = await busy(batcher, workshop)
        kept = asyncio.create_task(batcher.submit(["seven77"]))
        await settle()
        with pytest.raises(QueueFull):
            await batcher.submit(["four"])
        workshop.gate.set()
        await asyncio.gather(*first, kept)
        await batcher.close()

    run(scenario())


def test_what_is_larger_than_the_queue_is_let_in_when_nobody_waits():
    async def scenario():
        batcher = make_batcher(Workshop(), size=2, most_waiting=5)
        assert len(await batcher.submit(range(50))) == 50
        await batcher.close()

    run(scenario())


def test_the_pace_is_weight_by_time_with_something_to_do():
    pace = Throughput()
    assert pace.seconds(7) == DEFAULT_WAIT
    pace.begin(100.0)
    pace.end(10, 102.0)
    assert pace.seconds(20) == 4
    pace.begin(200.0)  # the time between does not count, and that of two side by side counts once
    pace.begin(201.0)
    pace.end(10, 202.0)
    pace.end(10, 203.0)
    weight, seconds = (10 * DECAY + 10) * DECAY + 10, (2 * DECAY + 2) * DECAY + 1
    assert pace.seconds(7) == pytest.approx(7 * seconds / weight)


# ---------------------------------------------------------------------------------------------------------------------
# Leaving


def test_who_is_late_leaves_the_queue():
    workshop = Workshop(is_open=False)

    async def scenario():
        batcher = make_batcher(workshop, size=2, most_waiting=10)
        first = await busy(batcher, workshop)
        with pytest.raises(TooLate, match=r"0\.02 s"):
            await batcher.submit("late", deadline=0.02)
        assert (batcher.waiting, batcher.late) == (0, 1)
        workshop.gate.set()
        await asyncio.gather(*first)
        await batcher.close()

    run(scenario())
    assert workshop.batches == [["first 0"]]


def test_a_deadline_can_pass_in_the_middle_of_a_request():
    workshop = Workshop(is_open=False)

    async def scenario():
        batcher = make_batcher(workshop, size=1, most_waiting=10)
        with pytest.raises(TooLate):
            await batcher.submit("abc", deadline=0.02)
        workshop.gate.set()
        assert await batcher.submit("d") == [("done", "d")]
        await batcher.close()

    run(scenario())
    assert workshop.batches == [["a"], ["d"]]


def test_a_timeout_of_the_work_is_not_a_missed_deadline():
    def work(items):
        raise TimeoutError("of the work")

    async def scenario():
        batcher = make_batcher(work, size=1, most_waiting=10)
        with pytest.raises(TimeoutError, match="of the work"):
            await batcher.submit("a", deadline=10)
        await batcher.close()

    run(scenario())


@given(st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=10), st.integers(1, 4))
def test_who_is_cancelled_leaves_the_queue_and_no_trace(asked, size):
    workshop = Workshop(is_open=False)

    async def scenario():
        batcher = make_batcher(workshop, size=size, most_waiting=100)
        first = await busy(batcher, workshop)
        tasks = [
            asyncio.create_task(batcher.submit([(place, number) for number in range(count)]))
            for place, (count, _) in enumerate(asked)
        ]
        await settle()
        for task, (_, leaves) in zip(tasks, asked, strict=True):
            if leaves:
                task.cancel()
        await settle()
        assert batcher.waiting == sum(count for count, leaves in asked if not leaves)
        workshop.gate.set()
        found = await asyncio.gather(*first, *tasks, return_exceptions=True)
        assert [isinstance(one, asyncio.CancelledError) for one in found[1:]] == [leaves for _, leaves in asked]
        await batcher.close()

    run(scenario())
    started = {item[0] for batch in workshop.batches[1:] for item in batch}
    assert started == {place for place, (_, leaves) in enumerate(asked) if not leaves}


def test_closing_finishes_what_was_taken_and_takes_nothing_more():
    workshop = Workshop(is_open=False)

    async def scenario():
        batcher = make_batcher(workshop, size=2, most_waiting=100, threads=2)
        tasks = [asyncio.create_task(batcher.submit([number, -number])) for number in range(10)]
        await settle()
        closing = asyncio.create_task(batcher.close())
        await settle()
        with pytest.raises(Closing):
            await batcher.submit(["more"])
        assert not closing.done()
        workshop.gate.set()
        await closing
        found = await asyncio.gather(*tasks)
        assert found == [[("done", number), ("done", -number)] for number in range(10)]
        assert batcher.waiting == batcher.working == 0

    run(scenario())


def test_memory_does_not_grow():
    """What 3,000 requests leave behind, a tenth of them cancelled, is less than ten bytes each."""

    async def some(batcher, rounds):
        for number in range(rounds):
            tasks = [asyncio.create_task(batcher.submit([f"{number} {place}"] * 3)) for place in range(10)]
            tasks[-1].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def scenario():
        batcher = make_batcher(lambda items: items, size=8, most_waiting=1000, threads=2)
        tracemalloc.start()
        try:
            await some(batcher, 300)
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            await some(batcher, 300)
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        await batcher.close()
        return grown

    assert run(scenario()) < 30_000


# ---------------------------------------------------------------------------------------------------------------------
# Clients


def of(client, batcher, *items):
    """Submit items as this client."""
    before = CLIENT.set(client)
    try:
        return asyncio.create_task(batcher.submit(items))  # copies the context
    finally:
        CLIENT.reset(before)


def test_clients_take_turns_whatever_the_number_of_their_requests():
    workshop = Workshop(is_open=False)

    async def scenario():
        batcher = make_batcher(workshop, size=1, most_waiting=100)
        tasks = [of("many", batcher, f"many {number}") for number in range(8)]
        await settle()
        tasks += [of("one", batcher, f"one {number}") for number in range(2)] + [of("two", batcher, "two 0")]
        await settle()
        workshop.gate.set()
        await asyncio.gather(*tasks)
        await batcher.close()

    run(scenario())
    order = [item for [item] in workshop.batches]
    assert order[:6] == ["many 0", "many 1", "one 0", "two 0", "many 2", "one 1"]
    assert sorted(order) == sorted([*(f"many {number}" for number in range(8)), "one 0", "one 1", "two 0"])


def test_a_queue_that_one_client_fills_accepts_another_client():
    workshop = Workshop(is_open=False)

    async def scenario():
        batcher = make_batcher(workshop, size=1, most_waiting=4)
        tasks = [of("many", batcher, f"many {number}") for number in range(5)]
        await settle()
        assert batcher.waiting == 4
        refused = of("many", batcher, "too many")
        accepted = [of("one", batcher, "one"), of("two", batcher, "two")]
        beyond = of("three", batcher, "three")  # the reserve is bounded
        await settle()
        for task in (refused, beyond):
            with pytest.raises(QueueFull):
                await task
        workshop.gate.set()
        assert await asyncio.gather(*accepted) == [[("done", "one")], [("done", "two")]]
        await asyncio.gather(*tasks)
        await batcher.close()

    run(scenario())
