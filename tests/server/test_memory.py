"""Memory goes back to the system while the server works, and only then."""

import asyncio

from regard.server import app as memory


def test_memory_is_given_back_after_work_and_not_without(monkeypatch):
    given_back = []
    monkeypatch.setattr(memory, "give_back", lambda: given_back.append(done))
    done = 0

    async def play():
        nonlocal done
        tidying = asyncio.create_task(memory.release_memory_regularly(lambda: done, every=0.01))
        await asyncio.sleep(0.05)
        assert not given_back
        done = 3
        while not given_back:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        tidying.cancel()

    asyncio.run(asyncio.wait_for(play(), 20))
    assert given_back == [3]


def test_giving_back_harms_nobody():
    kept = [bytes(100_000) for _ in range(50)]
    del kept[::2]
    memory.give_back()
    assert all(len(one) == 100_000 for one in kept)
