"""Many processes, one training. Started by torchrun, they form a `Team`; one process alone is a group of its own.

The recipe decides the arithmetic, the number of processes only the speed: what is summed over batches is summed over
processes, and whatever is decided is decided once, for all. No process ever waits for one that is gone: each gives
signs of life and watches the next, and the first to miss one, or to fail, ends all.
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
from types import TracebackType
from typing import NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore, rendezvous  # type: ignore[attr-defined]

from regard.errors import TrainingError

ARRIVAL = 600.0  # seconds in which all processes must have come
BEAT = 2.0  # seconds between signs of life
SILENCE = 16.0  # seconds without one after which a process counts as gone
SUSPICION = 6.0  # the same once a connection has broken: torchrun gives survivors 30 seconds to leave
CONNECTION_WORDS = ("gloo", "nccl", "connection", "socket", "broken pipe")

T = TypeVar("T")
P = ParamSpec("P")


class GroupMember(NamedTuple):
    """A process of a group."""

    rank: int
    host: str
    pid: int


class ProcessGroup:
    """The processes that train one model together. While entered, an error on one of them ends all."""

    def __init__(self, rank: int = 0, size: int = 1, local_rank: int = 0):
        self.rank, self.size, self.local_rank = rank, size, local_rank
        self.is_first = rank == 0
        self.pulse: Heartbeat | None = None
        self._rounds = 0

    def sum(self, *values: float) -> list[float]:
        """Each value summed over the processes: the very same sums on all of them."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total)
        return total.tolist()

    def once(self, action: Callable[[], T]) -> T:
        """What the first process finds, for all. The others wait for it, however long it takes."""
        if self.pulse is None:
            return action()
        self._rounds += 1
        found = [action() if self.is_first else None]
        self.pulse.meet(f"round {self._rounds}", first=self.is_first)
        dist.broadcast_object_list(found)
        return found[0]  # type: ignore[return-value]

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """Every n-th item: what this process does of a work that `join` puts together again."""
        return items[self.rank :: self.size]

    def join(self, items: Sequence[T]) -> list[T]:
        """What the processes made of their shares, in the order of the whole."""
        if self.size == 1:
            return list(items)
        shares: list[list[T]] = [[] for _ in range(self.size)]
        dist.all_gather_object(shares, list(items))
        longest = max(map(len, shares))
        return [share[place] for place in range(longest) for share in shares if place < len(share)]

    def tensors(self, held: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """The tensors of the first process, one after the other, for all."""
        if self.size == 1:
            yield from held.items()
            return
        shapes = self.once(lambda: [(name, tensor.shape, tensor.dtype) for name, tensor in held.items()])
        for name, shape, dtype in shapes:
            tensor = held[name] if self.is_first else torch.empty(shape, dtype=dtype)
            dist.broadcast(tensor, src=0)
            yield name, tensor

    def advise(self, advice: str) -> None:
        """What to do, should a process be gone."""
        if self.pulse is not None:
            self.pulse.advice = advice

    def leave(self) -> None:
        """Part from the others in peace: nothing is left to do together.

        The group is taken apart while Python still runs: a thread of gloo's that is left over aborts the process at its
        end, now and then. After a failure it is left alone, since it may wait for somebody who will never come.
        """
        if self.pulse is None:
            return
        in_peace = not self.pulse.has_ended
        self.pulse.stop()
        self.pulse = None
        if in_peace:
            dist.destroy_process_group()

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or self.pulse is None or self.pulse.has_ended:
            return
        if isinstance(error, RuntimeError) and any(word in str(error).lower() for word in CONNECTION_WORDS):
            self.pulse.find_out_who_left()
        if not self.pulse.fail():
            raise SystemExit(1)  # another failed first, and has said why


@functools.cache
def this_group() -> ProcessGroup:
    """The group of this process, joined when first asked for."""
    rank, size, local = (int(os.environ.get(name, default)) for name, default in _PLACE)
    group = ProcessGroup(rank, size, local)
    if size > 1:
        store, *_ = next(rendezvous("env://"))
        session = agree(store, rank, size)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=PrefixStore(session, store), rank=rank, world_size=size)
        members: list[GroupMember] = [GroupMember(0, "", 0)] * size
        dist.all_gather_object(members, GroupMember(rank, socket.gethostname(), os.getpid()))
        group.pulse = Heartbeat(members, rank, session, speaks=local == 0)
        atexit.register(group.leave)
    return group


def agree(store: Store, rank: int, size: int) -> str:
    """A name for this meeting of processes that no earlier one had.

    torchrun's store outlives a restart, and addresses of the dead are still in it; nor does a restart count tell the
    meetings apart, because it may differ from machine to machine. So every process says hello by a name of its own, and
    the first makes the meeting's name of them; one in which a dead process is counted is never confirmed by it.
    """
    mine, until = uuid.uuid4().hex, time.monotonic() + ARRIVAL
    store.set(f"hello {rank}", mine)
    while time.monotonic() < until:
        if rank == 0:
            store.set("meeting", " ".join(store.get(f"hello {other}").decode() for other in range(size)))
        hellos = store.get("meeting").decode()
        name = hashlib.blake2b(hellos.encode(), digest_size=16).hexdigest()
        if mine in hellos.split():
            store.set(f"{name} has {rank}", "")
            if store.check([f"{name} has {other}" for other in range(size)]):
                return name
        time.sleep(0.02)
    raise TrainingError(f"not all {size} processes came within {ARRIVAL:.0f} s; look at the messages of the others")


_PLACE = (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))


class Heartbeat:
    """Signs of life in the launcher's store. Each process watches the next; one that finds it silent ends all."""

    advice = "start again"
    """What to do when a process is gone."""

    def __init__(self, members: Sequence[GroupMember], rank: int, session: str, *, speaks: bool):
        """`speaks`: say what happened even when another process found it out; one a machine should."""
        self.me, self.watched, self.size = members[rank], members[(rank + 1) % len(members)], len(members)
        self.session, self.speaks = session, speaks
        self.patience = SILENCE
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        limit = timedelta(seconds=SILENCE)
        self._store = TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=limit)
        self._ended = threading.Event()
        self._beats = self._missed = 0
        self._heard = ""
        self._thread = threading.Thread(target=self._live, name="pulse", daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether no more signs of life are given: this process has left, or failed and said so."""
        return self._ended.is_set()

    def meet(self, what: str, *, first: bool) -> None:
        """Wait until the first process has come here."""
        key = self._key(what)
        if first:
            self._store.set(key, "here")
        while not first and not self._store.check([key]):
            if self._get("beat 0") == "bye" and not self._store.check([key]):
                raise TrainingError("the first process has left before its work was done")
            time.sleep(0.05)

    def fail(self) -> bool:
        """Tell the others that this process has failed; False where another did before it."""
        verdict = json.dumps({"by": self.me.rank, "line": ""})
        with contextlib.suppress(RuntimeError):  # without a store, the others will miss our signs of life
            if self._claim(verdict) != verdict:
                return False
        self._ended.set()
        return True

    def find_out_who_left(self) -> None:
        """A connection broke: give the watchers the time to name the one who left. Comes back if nobody did."""
        self.patience = SUSPICION
        self._thread.join(2 * SILENCE)

    def stop(self) -> None:
        """Give no more signs of life, and be missed by nobody."""
        self._ended.set()
        self._thread.join(SILENCE)
        with contextlib.suppress(RuntimeError):
            self._store.set(self._key(f"beat {self.me.rank}"), "bye")

    def _live(self) -> None:
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
        if self._store.check([self._key("verdict")]):
            self._obey(self._store.get(self._key("verdict")).decode())
        heard = self._get(f"beat {self.watched.rank}")
        if heard != self._heard or heard == "bye":
            self._heard, self._missed = heard, 0
            return
        self._missed += 1  # counted in beats of our own: whoever was asleep together wakes up together
        if self._missed * BEAT > self.patience:
            rank, host, pid = self.watched
            problem = f"process {rank} of {self.size} (host {host}, pid {pid}) gives no sign of life"
            self._obey(self._claim(json.dumps({"by": self.me.rank, "line": problem})))

    def _obey(self, verdict: str) -> None:
        """Leave as the process says that was first to know."""
        told = json.loads(verdict)
        if not told["line"]:
            time.sleep(BEAT)  # torchrun ends all as soon as one has left: let the one that failed say why
        self._end(told["line"] if self.speaks or told["by"] == self.me.rank else "")

    def _end(self, problem: str) -> None:
        """End the process from this thread: the main one may be waiting for somebody who will never come."""
        if self._ended.is_set():
            return
        if problem:
            show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a live bar may have hidden it
            with contextlib.suppress(OSError):  # nobody may be left to read it
                print(f"{show_cursor}regard: {problem}; all processes end: {self.advice}", file=sys.stderr, flush=True)
        os._exit(1)

    def _claim(self, verdict: str) -> str:
        """The verdict of whoever came first."""
        return self._store.compare_set(self._key("verdict"), "", verdict).decode()

    def _get(self, what: str) -> str:
        key = self._key(what)
        return self._store.get(key).decode() if self._store.check([key]) else ""

    def _key(self, what: str) -> str:
        return f"regard {self.session} {what}"
