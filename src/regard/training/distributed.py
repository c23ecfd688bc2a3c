"""Processes that train one model together, started by torchrun. A single process is a group of one.

The number of processes changes only the speed, not the results: sums over batches are sums over processes, and the
first process decides for all. Each process sends heartbeats and watches the heartbeats of the next process. If a
process fails or its heartbeats stop, all processes end, so that none waits for a dead process.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import json
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore, rendezvous  # type: ignore[attr-defined]

from regard.errors import TrainingError

JOIN_TIMEOUT = 600.0  # seconds within which all processes must have started
BEAT = 2.0  # seconds between heartbeats
SILENCE = 16.0  # seconds without a heartbeat after which a process counts as dead
SUSPICION = 6.0  # the same after a connection has broken: torchrun ends the other processes 30 seconds later
CONNECTION_WORDS = ("gloo", "nccl", "connection", "socket", "broken pipe")

T = TypeVar("T")


class GroupMember(NamedTuple):
    """One process of a group: its rank, host name and process id."""

    rank: int
    host: str
    pid: int


class ProcessGroup:
    """The processes that train one model together. Within `with group`, an error in one process ends all processes."""

    def __init__(self, rank: int = 0, size: int = 1, local_rank: int = 0):
        self.rank, self.size, self.local_rank = rank, size, local_rank
        self.is_first = rank == 0
        self.heartbeat: Heartbeat | None = None
        self._rounds = 0

    def sum(self, *values: float) -> list[float]:
        """Sum each argument over all processes, which must all call this; all get exactly the same sums."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total)
        return total.tolist()

    def once(self, action: Callable[[], T]) -> T:
        """Run `action` in the first process only; return its result in all processes, which wait without time limit."""
        if self.heartbeat is None:
            return action()
        self._rounds += 1
        found = [action() if self.is_first else None]
        self.heartbeat.wait_for_first(f"round {self._rounds}", first=self.is_first)
        dist.broadcast_object_list(found)
        return found[0]  # type: ignore[return-value]

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """The items that this process must compute: every n-th item, for n processes. `join` collects the results."""
        return items[self.rank :: self.size]

    def join(self, items: Sequence[T]) -> list[T]:
        """The results of all processes, in the order of items before `share`; `items`: the results of this process."""
        if self.size == 1:
            return list(items)
        shares: list[list[T]] = [[] for _ in range(self.size)]
        dist.all_gather_object(shares, list(items))
        longest = max(map(len, shares))
        return [share[place] for place in range(longest) for share in shares if place < len(share)]

    def tensors(self, held: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Broadcast the tensors `held` of the first process: yield (name, tensor). Other processes ignore `held`."""
        if self.size == 1:
            yield from held.items()
            return
        shapes = self.once(lambda: [(name, tensor.shape, tensor.dtype) for name, tensor in held.items()])
        for name, shape, dtype in shapes:
            tensor = held[name] if self.is_first else torch.empty(shape, dtype=dtype)
            dist.broadcast(tensor, src=0)
            yield name, tensor

    def advise(self, advice: str) -> None:
        """Set the last words of the message about a dead process, which tell the user what to do."""
        if self.heartbeat is not None:
            self.heartbeat.advice = advice

    def leave(self) -> None:
        """Leave the group when its work is done; nothing happens if this process is alone or has already left.

        The torch process group is destroyed while Python still runs, because a remaining gloo thread sometimes aborts
        the process at exit. After a failure it is not destroyed, because destroying may wait for a dead process.
        """
        if self.heartbeat is None:
            return
        healthy = not self.heartbeat.has_ended
        self.heartbeat.stop()
        self.heartbeat = None
        if healthy:
            dist.destroy_process_group()

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or self.heartbeat is None or self.heartbeat.has_ended:
            return
        if isinstance(error, RuntimeError) and any(word in str(error).lower() for word in CONNECTION_WORDS):
            self.heartbeat.find_dead_process()
        if not self.heartbeat.fail():
            raise SystemExit(1)  # another process failed first and has reported it


@functools.cache
def this_group() -> ProcessGroup:
    """The group of this process, from the environment that torchrun sets; the first call joins the other processes."""
    ranks = (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0))
    rank, size, local = (int(os.environ.get(name, default)) for name, default in ranks)
    group = ProcessGroup(rank, size, local)
    if size > 1:
        store, *_ = next(rendezvous("env://"))
        session = agree_on_session(store, rank, size)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=PrefixStore(session, store), rank=rank, world_size=size)
        members: list[GroupMember] = [GroupMember(0, "", 0)] * size
        dist.all_gather_object(members, GroupMember(rank, socket.gethostname(), os.getpid()))
        group.heartbeat = Heartbeat(members, rank, session, reports=local == 0)
        atexit.register(group.leave)
    return group


def agree_on_session(store: Store, rank: int, size: int) -> str:
    """The name of this session (one start of all processes): the same in all processes, and new at every restart.

    `store`, the key-value store of torchrun, outlives a restart and still contains the addresses of dead processes.
    The restart count of torchrun does not identify sessions, because it may differ between machines. So every process
    registers a random name, and the first process builds the name of the session from these names. The name is valid
    when all processes have confirmed it, which a dead process cannot do.
    """
    mine, until = uuid.uuid4().hex, time.monotonic() + JOIN_TIMEOUT
    store.set(f"name {rank}", mine)
    while time.monotonic() < until:
        if rank == 0:
            store.set("session", " ".join(store.get(f"name {other}").decode() for other in range(size)))
        names = store.get("session").decode()
        name = hashlib.blake2b(names.encode(), digest_size=16).hexdigest()
        if mine in names.split():
            store.set(f"{name} has {rank}", "")
            if store.check([f"{name} has {other}" for other in range(size)]):
                return name
        time.sleep(0.02)
    raise TrainingError(
        f"not all {size} processes started within {JOIN_TIMEOUT:.0f} s; look for error messages of the other processes"
    )


class Heartbeat:
    """Sends heartbeats to torchrun's key-value store, and watches the heartbeats of the next process.

    If the heartbeats of the next process stop, all processes are ended. torchrun itself does this only if a process
    exits, not if a process hangs or its machine is gone.
    """

    advice = "start again"  # what the user should do if a process dies

    def __init__(self, members: Sequence[GroupMember], rank: int, session: str, *, reports: bool):
        """`members`: all processes by rank; `rank`: that of this process; `session`: the name from `agree_on_session`.

        `reports`: whether this process prints failures that others found; True for one process per machine.
        """
        self.me, self.watched, self.size = members[rank], members[(rank + 1) % len(members)], len(members)
        self.session, self.reports = session, reports
        self.patience = SILENCE
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        limit = timedelta(seconds=SILENCE)
        self._store = TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=limit)
        self._ended = threading.Event()
        self._beats = self._missed = 0
        self._last_beat = ""
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether the heartbeat has stopped: this process has left the group, or has reported its failure."""
        return self._ended.is_set()

    def wait_for_first(self, what: str, *, first: bool) -> None:
        """Wait until the first process calls this with the same name `what`; `first`: True in the first process."""
        key = self._key(what)
        if first:
            self._store.set(key, "here")
        while not first and not self._store.check([key]):
            if self._get("beat 0") == "bye" and not self._store.check([key]):
                raise TrainingError("the first process (rank 0) ended while others waited; see its error message")
            time.sleep(0.05)

    def fail(self) -> bool:
        """Report to the other processes that this process has failed; False if another reported a failure before."""
        with contextlib.suppress(RuntimeError):  # without a store, the others will miss our heartbeat
            if self._report_failure("") != {"by": self.me.rank, "problem": ""}:
                return False
        self._ended.set()
        return True

    def find_dead_process(self) -> None:
        """After a broken connection, wait for missing heartbeats; end this process if another is dead, else return."""
        self.patience = SUSPICION
        self._thread.join(2 * SILENCE)

    def stop(self) -> None:
        """Stop the heartbeat, and tell the other processes that this process has left and is not dead."""
        self._ended.set()
        self._thread.join(SILENCE)
        with contextlib.suppress(RuntimeError):
            self._store.set(self._key(f"beat {self.me.rank}"), "bye")

    def _run(self) -> None:
        unreachable = 0
        while not self._ended.wait(BEAT):
            try:
                self._beat()
                unreachable = 0
            except RuntimeError:
                unreachable += 1
                if unreachable * BEAT > self.patience:
                    where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
                    self._end(f"the launcher at {where} cannot be reached")

    def _beat(self) -> None:
        self._beats += 1
        self._store.set(self._key(f"beat {self.me.rank}"), str(self._beats))
        if self._store.check([self._key("failure")]):
            self._end_after(json.loads(self._store.get(self._key("failure"))))
        beat = self._get(f"beat {self.watched.rank}")
        if beat != self._last_beat or beat == "bye":
            self._last_beat, self._missed = beat, 0
            return
        self._missed += 1  # counted in our own beats: a suspended machine wakes up with all its processes
        if self._missed * BEAT > self.patience:
            rank, host, pid = self.watched
            problem = f"process {rank} of {self.size} (host {host}, pid {pid}) does not respond"
            self._end_after(self._report_failure(problem))

    def _report_failure(self, problem: str) -> dict[str, Any]:
        """Store `problem` as the failure of the group, unless a failure is stored already; return what is stored."""
        report = json.dumps({"by": self.me.rank, "problem": problem})
        found: dict[str, Any] = json.loads(self._store.compare_set(self._key("failure"), "", report))
        return found

    def _end_after(self, failure: dict[str, Any]) -> None:
        """End this process because a process of the group failed.

        Prints `failure` if this process found it, or if this process prints the failures of its machine
        (`self.reports`).
        """
        if not failure["problem"]:
            time.sleep(BEAT)  # torchrun ends all as soon as one exits: let the failed process print its error first
        self._end(failure["problem"] if self.reports or failure["by"] == self.me.rank else "")

    def _end(self, problem: str) -> None:
        """Print `problem`, if not empty, and end this process at once.

        The heartbeat thread ends it with `os._exit`, because the main thread may be waiting for a dead process.
        """
        if self._ended.is_set():
            return
        if problem:
            show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a progress bar may have hidden it
            with contextlib.suppress(OSError):  # the terminal may be closed
                print(f"{show_cursor}regard: {problem}; all processes end: {self.advice}", file=sys.stderr, flush=True)
        os._exit(1)

    def _get(self, what: str) -> str:
        key = self._key(what)
        return self._store.get(key).decode() if self._store.check([key]) else ""

    def _key(self, what: str) -> str:
        return f"regard {self.session} {what}"
