"""Everything that differs between operating systems: locks, cores, memory, signals, moved folders, output encoding.

Other modules never test for a system by name. A feature that a system lacks is left out if it changes no result (speed,
durability), and replaced if it does (locks).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from regard.errors import UnwritableError

STOP_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that ask a process to end: Ctrl-C, a system that shuts down, and a closed terminal where that is a signal."""

START_METHOD = "spawn"
"""How worker processes start. All systems have it, and a forked copy of a process with torch's threads may hang."""

# Names and numbers of glibc's mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8


# ---------------------------------------------------------------------------------------------------------------------
# Processor and memory


def usable_cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_memory() -> float:
    """Bytes that a new process could have; infinite where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            known = dict(line.split(":") for line in file)
        return 1024.0 * int(known["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return float("inf")


@functools.cache
def keep_memory() -> bool:
    """Make the allocator keep freed memory instead of returning it to the kernel after every step; False if it cannot.

    A step frees and takes the same large blocks again, and the kernel would clear every page each time: a tenth of the
    throughput with glibc. It concerns the whole process, so only the command line and the server call it.
    """
    mallopt = _glibc("mallopt")
    return mallopt is not None and all(mallopt(name, 1 << 30) for name in (_MMAP_THRESHOLD, _TRIM_THRESHOLD))


def share_one_heap() -> bool:
    """Make all threads take memory from one heap; call it before there are threads. False if the library cannot.

    glibc gives each thread a heap of its own, and no thread can use what another has freed. A server that gets texts of
    all lengths would grow for hours (`tests/surface/test_hostile.py` measures it).
    """
    mallopt = _glibc("mallopt")
    return mallopt is not None and bool(mallopt(_ARENA_MAX, 1))


def give_back() -> None:
    """Return free pages to the system, also those between pages in use, where the library can."""
    malloc_trim = _glibc("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def _glibc(name: str) -> Callable[..., int] | None:
    """A function of the C library that this process runs with, if it has one of this name."""
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):  # TypeError: Windows has no handle for "this process"
        return None


# ---------------------------------------------------------------------------------------------------------------------
# Files


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a lock file until the block or the process ends; raises BlockingIOError at once if it is held already."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(path, timeout=0):
            yield
    except Timeout:
        raise BlockingIOError(f"{path} is held by another process") from None


@contextlib.contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Hold a lock file; waits while another process holds it.

    Some network drives have no locks. The block runs there without one, so it must be safe, if wasteful, to run twice.
    """
    from filelock import FileLock

    lock = FileLock(path)
    with contextlib.suppress(OSError, NotImplementedError):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def rename_folder(folder: Path, target: Path) -> None:
    """Rename a folder; tries again for two seconds while a file in it is open.

    Windows refuses to rename a folder while any program, such as a virus scanner, has a file in it open. This process
    must have closed its own maps before.
    """
    for left in reversed(range(20)):
        try:
            os.rename(folder, target)
            return
        except PermissionError as error:
            if not left:
                raise UnwritableError(f"{folder}: cannot be renamed to {target.name} ({error.strerror})") from None
            time.sleep(0.1)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut, where the system can open a folder as a file."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# ---------------------------------------------------------------------------------------------------------------------
# Output


def use_utf8_output() -> None:
    """Write UTF-8 to standard output and error, whatever the system's own encoding is (cp1252 on many Windows)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower().replace("-", "") != "utf8":
            stream.reconfigure(encoding="utf-8", errors=stream.errors)
