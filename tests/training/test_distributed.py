"""Teams without processes: alone, and the signs of life against a store of our own."""

import json
import os
import socket
from datetime import timedelta

import pytest
import torch
from torch import distributed as dist

from regard.errors import TrainingError
from regard.training import distributed
from regard.training.distributed import GroupMember, Heartbeat, ProcessGroup, this_group


def test_alone_nothing_is_shared():
    group = ProcessGroup()
    assert group.is_first
    assert group.sum(1.5, True) == [1.5, True]
    assert group.once(lambda: "found") == "found"
    assert group.join(group.share([1, 2, 3])) == [1, 2, 3]
    tensors = {"a": torch.ones(2)}
    assert dict(group.tensors(tensors)) == tensors
    with pytest.raises(ValueError, match="mine"), group:
        raise ValueError("mine")
    group.leave()


def test_without_torchrun_a_process_is_alone(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    this_group.cache_clear()
    assert this_group().size == 1
    assert this_group() is this_group()


@pytest.mark.parametrize(("items", "size"), [(7, 3), (2, 3), (0, 2), (6, 2)])
def test_shares_are_joined_in_order(monkeypatch, items, size):
    whole = list(range(items))
    shares = [list(ProcessGroup(rank, size).share(whole)) for rank in range(size)]

    def gather(found, mine):
        found[:] = shares

    monkeypatch.setattr(dist, "all_gather_object", gather)
    assert ProcessGroup(1, size).join(shares[1]) == whole


class LeftError(Exception):
    """Instead of the end of the process."""


@pytest.fixture
def heartbeats(monkeypatch):
    """A store, and heartbeats whose beats are made by hand."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    store = dist.TCPStore("localhost", port, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=20))
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", str(port))
    monkeypatch.setattr(distributed, "BEAT", 4.0)  # while the threads sleep, the test beats
    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(distributed.time, "sleep", lambda seconds: None)
    members = [GroupMember(rank, f"host{rank}", 100 + rank) for rank in range(3)]
    made = [Heartbeat(members, rank, "session", reports=False) for rank in range(3)]
    yield made
    for heartbeat in made:
        heartbeat._ended.set()
    del store


def leave(code):
    raise LeftError(code)


def test_who_is_silent_is_named_once_and_all_leave(heartbeats, capfd):
    for _ in range(3):
        for heartbeat in heartbeats:
            heartbeat._beat()
    for _ in range(5):
        heartbeats[0]._beat()
        heartbeats[2]._beat()
    with pytest.raises(LeftError):
        heartbeats[0]._beat()
    assert "process 1 of 3 (host host1, pid 101) does not respond" in capfd.readouterr().err
    with pytest.raises(LeftError):
        heartbeats[2]._beat()  # it watches 0, which is well, and reads what 0 found out
    assert capfd.readouterr().err == ""


def test_who_said_goodbye_is_not_missed(heartbeats):
    for heartbeat in heartbeats:
        heartbeat._beat()
    heartbeats[1].stop()
    for _ in range(10):
        heartbeats[0]._beat()
        heartbeats[2]._beat()


def test_the_first_to_fail_speaks_and_the_others_leave_quietly(heartbeats, capfd):
    assert heartbeats[2].fail()
    assert not heartbeats[0].fail()
    assert heartbeats[2].has_ended
    with pytest.raises(LeftError):
        heartbeats[0]._beat()
    assert capfd.readouterr().err == ""
    assert json.loads(heartbeats[0]._get("failure")) == {"by": 2, "problem": ""}


def test_all_who_meet_wait_for_the_first(heartbeats):
    heartbeats[0].wait_for_first("here", first=True)
    heartbeats[1].wait_for_first("here", first=False)
    heartbeats[0].stop()
    with pytest.raises(TrainingError, match=r"the first process .* ended"):
        heartbeats[1].wait_for_first("nowhere", first=False)
