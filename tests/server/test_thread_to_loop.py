"""What a thread says reaches the loop in order, and wakes it no more often than it must."""

import asyncio
import threading
from itertools import count

import pytest

from regard.server.batching import ThreadToLoop


def test_the_loop_is_woken_once_for_all_that_came_meanwhile(monkeypatch):
    async def scenario():
        heard, loop, wakings = asyncio.Queue(), asyncio.get_running_loop(), []
        wake = loop.call_soon_threadsafe
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *what: wakings.append(wake(*what)))
        relay = ThreadToLoop(heard)
        for expected in (1, 2):
            thread = threading.Thread(target=lambda: [relay.put(number) for number in range(1000)])
            thread.start()
            thread.join()  # the loop stands still meanwhile
            assert [await heard.get() for _ in range(1000)] == list(range(1000))
            assert len(wakings) == expected
        assert heard.empty()

    asyncio.run(scenario())


@pytest.mark.parametrize("pieces", [1, 5000])
def test_nothing_is_lost_where_both_are_at_work(pieces):
    async def scenario():
        heard = asyncio.Queue()
        await asyncio.to_thread(lambda relay: [relay.put(number) for number in range(pieces)], ThreadToLoop(heard))
        return [await asyncio.wait_for(heard.get(), 20) for _ in range(pieces)]

    assert asyncio.run(scenario()) == list(range(pieces))


def test_one_that_never_stops_leaves_the_loop_to_others():
    async def scenario():
        heard, stop = asyncio.Queue(), threading.Event()

        def talk(relay):
            for number in count():
                if stop.is_set():
                    return
                relay.put(number)

        talking = asyncio.create_task(asyncio.to_thread(talk, ThreadToLoop(heard)))
        for number in range(3):
            assert await heard.get() == number
        stop.set()
        await talking

    asyncio.run(scenario())
