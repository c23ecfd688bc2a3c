"""Everything that differs between operating systems: locks, cores, memory, signals, moved folders, output encoding.

Other modules never test for a system by name. A feature that a system lacks is skipped if only speed or durability
depends on the feature. If results depend on it (locks), another implementation is used.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from regard.errors import UnwritableError

STOP_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that ask a process to end: Ctrl-C, system shutdown, and (not on Windows) a closed terminal."""

HANGUP = getattr(signal, "SIGHUP", None)
"""The signal of a closed terminal; not every system has it."""

START_METHOD = "spawn"
"""How worker processes start. All systems support it; a forked process may hang, because torch has threads."""

_PARENT_DEATH_SIGNAL = 1
"""The number of PR_SET_PDEATHSIG in Linux' prctl(2)."""

# Names and numbers of glibc's mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8


# ---------------------------------------------------------------------------------------------------------------------
# Processor and memory


def usable_cores() -> int:
    """Number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_memory() -> float:
    """Number of bytes of memory that are available; infinite if the system does not report it."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            known = dict(line.split(":") for line in file)
        return 1024.0 * int(known["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return float("inf")


def peak_memory() -> int | None:
    """The largest amount of memory that this process has used so far, in bytes; None if the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


@functools.cache
def keep_memory() -> bool:
    """Make the allocator keep freed memory instead of returning it to the kernel; returns False if it cannot.

    Each training step allocates the same large blocks again. The kernel would fill their pages with zeros each time,
    which costs a tenth of the throughput. The call changes the whole process, so only the command line and the server
    make it.
    """
    return all(_call_libc("mallopt", name, 1 << 30) for name in (_MMAP_THRESHOLD, _TRIM_THRESHOLD))


def share_one_heap() -> bool:
    """Make all threads allocate from one heap; returns False if the C library cannot.

    The caller must call it before any thread starts. By default, glibc gives each thread its own heap, and no thread
    can use memory that another thread has freed. The memory of a server that gets texts of all lengths would grow for
    hours (`tests/surface/test_hostile.py` measures this).
    """
    return bool(_call_libc("mallopt", _ARENA_MAX, 1))


def give_back() -> None:
    """Return freed memory of this process to the operating system, if the C library supports it."""
    _call_libc("malloc_trim", 0)


def end_with_parent() -> None:
    """Ask for SIGTERM when the process that started this one ends, also if it is killed; does nothing but on Linux."""
    if sys.platform == "linux":
        _call_libc("prctl", _PARENT_DEATH_SIGNAL, signal.SIGTERM)


def _call_libc(name: str, *arguments: int) -> int:
    """Call the function `name` of the C library of this process; returns 0 if there is no such function."""
    import ctypes  # here, because help does not need it

    try:
        function = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):  # TypeError: Windows has no handle for "this process"
        return 0
    return function(*arguments)


# ---------------------------------------------------------------------------------------------------------------------
# Files


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Lock the file `path` during a `with` block. Raises BlockingIOError at once if another process has the lock."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(path, timeout=0):
            yield
    except Timeout:
        raise BlockingIOError(f"{path} is locked by another process; wait until it ends") from None


@contextlib.contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Lock the file `path` during a `with` block; waits for other processes. Takes no lock on drives without locks."""
    from filelock import FileLock

    lock = FileLock(path)
    with contextlib.suppress(OSError, NotImplementedError):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def rename_folder(folder: Path, target: Path) -> None:
    """Rename `folder` to `target`; tries again for two seconds if the system refuses.

    Windows refuses to rename a folder while any program, such as a virus scanner, has a file in it open. The
    caller must first close its own memory-mapped files in the folder.
    """
    for left in reversed(range(20)):
        try:
            os.rename(folder, target)
            return
        except PermissionError as error:
            if not left:
                raise UnwritableError(
                    f"{folder}: cannot be renamed to {target.name} ({error.strerror}); close programs that use it"
                ) from None
            time.sleep(0.1)


def sync_folder(folder: Path) -> None:
    """Call fsync on a folder: new and renamed files in it survive a power cut. Does nothing on Windows."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# ---------------------------------------------------------------------------------------------------------------------
# Output


def use_utf8_output() -> None:
    """Make standard output and standard error use UTF-8, also where the system default differs (cp1252 on Windows)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower().replace("-", "") != "utf8":
            stream.reconfigure(encoding="utf-8", errors=stream.errors)
