"""Atomic writes: a file holds all of the new content, or what was there before."""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import io
import os
import secrets
import stat
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from regard.errors import CorpusError, RunError, UnwritableError, nearest
from regard.system import sync_folder

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Errors of a write that name no file: the disk or the quota is full, the file too large, the disk read-only."""
DRAFT = ".part"
"""Ending of everything that has not got its name yet. A draft starts with a dot and the name that it will get."""
ABANDONED = 60.0
"""Seconds after which a draft of a small file cannot belong to a running process any more."""


def is_stream(path: Path) -> bool:
    """Whether the path is a device, a pipe or a terminal, which is written into and never replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def draft_of(path: Path) -> Path:
    """An unused name beside a file or folder, to write into until the content is complete."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{DRAFT}")


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it holds all of the content, or what was there before, even after a power cut."""
    draft = draft_of(path)
    try:
        try:
            with draft.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise UnwritableError(f"{path}: cannot write ({error.strerror}); what was there before is untouched") from None


def remove_drafts(folder: Path, name: str = "*", *, older_than: float = 0.0) -> None:
    """Remove files that a killed process left unfinished. Call it where no running process can write such a file.

    `name` is a pattern of the names that they would have got; `older_than` spares those written to in the last seconds.
    """
    for path in folder.glob(f".{name}.*-*{DRAFT}"):
        with contextlib.suppress(OSError):
            if path.is_file() and not path.is_symlink() and time.time() - path.stat().st_mtime >= older_than:
                path.unlink()


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RunError(f"{path}: cannot read ({error.strerror})") from None


def concerns(error: OSError, *drafts: Path) -> bool:
    """Whether an error in the middle of other work came from writing one of these drafts, or into one.

    Errors that name another file do not. One that names none does if it says that no more can be written.
    """
    if error.filename is None:
        return error.errno in FULL
    failed = Path(os.fsdecode(error.filename))
    return any(failed == draft or draft in failed.parents for draft in drafts)


# Text files as they lie on disk: plain, .gz or .zst, with everything that can be wrong with them told in one line.


COMPRESSIONS = (".gz", ".zst")
STDIN = "standard input"
BLOCK = 1 << 16
"""Bytes that are read at a time."""
LONGEST_LINE = 1 << 26
"""Bytes; without a bound, a file such as /dev/zero would fill the memory."""
_ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


Item = TypeVar("Item")


class EmptyFileError(CorpusError):
    """A file without a single byte of text."""


def split_suffix(path: str | Path) -> tuple[str, str]:
    """The format's and the compression's suffix, in lower case: "a.tsv.gz" gives ".tsv" and ".gz"."""
    name = Path(path)
    compression = name.suffix.lower()
    if compression in COMPRESSIONS:
        return name.with_suffix("").suffix.lower(), compression
    return compression, ""


def read_lines(path: str | Path) -> Iterator[str]:
    r"""Stream the lines of a UTF-8 file without their line ends.

    Only \n and \r\n end a line: U+2028, form feeds and the like are text, so that two files stay side by side whatever
    they hold. A byte order mark at the start of the file is dropped.
    """
    count = 0
    with opened(path) as file:
        try:
            for lines in _read_blocks(file, path):
                count += len(lines)
                yield from lines
        except _damages() as error:
            raise _damaged(path, error, count + 1) from None
    if not count:
        raise EmptyFileError(path, "the file is empty")


def read_input_lines(*, forgiving: bool = False) -> Iterator[str]:
    """The lines of standard input, as `read_lines` gives those of a file; there may be none.

    `forgiving`: what is not UTF-8 is read as U+FFFD.
    """
    with standard_input() as file:
        for lines in _read_blocks(file, STDIN, "replace" if forgiving else "strict"):
            yield from lines


def first_of(items: Iterator[Item]) -> list[Item]:
    """The first item that is read from a file, in a list; an empty list where the file is empty."""
    try:
        return list(islice(items, 1))
    except EmptyFileError:
        return []


def is_typed() -> bool:
    """Whether somebody types at standard input, line by line."""
    return sys.stdin is not None and sys.stdin.isatty()


@contextmanager
def standard_input() -> Iterator[BinaryIO]:
    """The bytes of standard input. Whatever fails is told as a CorpusError."""
    if sys.stdin is None:  # closed by who started us, as by <&- in a shell
        raise CorpusError(STDIN, "is closed; name a file, or pipe text in")
    try:
        yield sys.stdin.buffer
    except OSError as error:
        raise CorpusError(STDIN, f"cannot be read ({error.strerror})") from None


@contextmanager
def opened(path: str | Path, *, unpacked: bool = True) -> Iterator[BinaryIO]:
    """The bytes of a file, closed at the end. Whatever fails, to the last byte, is told as a CorpusError."""
    try:
        if os.path.isdir(path):
            raise CorpusError(path, "a folder, not a file")
        with open(path, "rb") as raw:
            if _is_empty(raw):
                raise EmptyFileError(path, "the file is empty")
            try:
                yield _unpack(path, raw) if unpacked else raw
            except _damages() as error:
                raise _damaged(path, error, None) from None
    except FileNotFoundError:
        raise CorpusError(path, f"no such file{_nearest_file(Path(path))}") from None
    except PermissionError:
        raise CorpusError(path, "no permission to read it") from None
    except OSError as error:
        raise CorpusError(path, f"cannot be read ({error.strerror})") from None


def require(module: str, path: str | Path, need: str) -> Any:
    """Import an optional module, or say which extra brings it."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        package = module if module == _ZSTD else module.partition(".")[0]  # "backports" alone is no package
        raise CorpusError(path, f'{need} needs {package}: pip install "regard[formats]"') from None


def zstd(path: str | Path, need: str) -> Any:
    """The zstd module of the standard library, or its backport before Python 3.14."""
    return require(_ZSTD, path, need)


def _is_empty(file: BinaryIO) -> bool:
    status = os.fstat(file.fileno())
    return stat.S_ISREG(status.st_mode) and status.st_size == 0  # a pipe has no size


def _unpack(path: str | Path, raw: BinaryIO) -> BinaryIO:
    compression = split_suffix(path)[1]
    if compression == ".gz":
        return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=raw))))
    if compression == ".zst":
        return cast(BinaryIO, io.BufferedReader(zstd(path, "reading .zst").ZstdFile(raw)))
    return raw


def _read_blocks(file: BinaryIO, where: str | Path, errors: str = "strict") -> Iterator[list[str]]:
    """The lines of a file, as many at a time as there are: decoding them together is twice as fast as one by one."""
    buffered = cast(io.BufferedReader, file)
    number = 1  # of the next line
    begun: list[bytes] = []  # parts of a line whose end was not read yet
    while chunk := buffered.read1(BLOCK):
        end = chunk.rfind(b"\n") + 1
        if end:
            for lines in _decode(b"".join((*begun, chunk[:end])), where, number, errors):
                yield lines
                number += len(lines)
            begun = [chunk[end:]] if end < len(chunk) else []
        else:
            begun.append(chunk)
            if sum(map(len, begun)) > LONGEST_LINE:
                problem = f"a line of more than {LONGEST_LINE >> 20} MB; this is no text, or its line ends are missing"
                raise CorpusError(where, problem, line=number)
    if begun:
        yield from _decode(b"".join(begun), where, number, errors)


def _decode(block: bytes, where: str | Path, number: int, errors: str) -> Iterator[list[str]]:
    """The lines of a block, which ends where a line ends. Lines before one that is not UTF-8 are given first."""
    try:
        text = block.decode(errors=errors)
    except UnicodeDecodeError as error:
        start = block.rfind(b"\n", 0, error.start) + 1
        good = _split(block[:start].decode(), number) if start else []
        if good:
            yield good
        number += len(good)
        if number == 1 and block.startswith(_UTF16_MARKS):
            problem = "UTF-16, not UTF-8; convert it, e.g. iconv -f utf-16 -t utf-8"
        else:
            byte = f"byte {error.start - start + 1} of the line is 0x{block[error.start]:02x}"
            problem = f"not UTF-8 ({byte}); convert the file, e.g. iconv -f latin1 -t utf-8"
        raise CorpusError(where, problem, line=number) from None
    yield _split(text, number)


def _split(text: str, number: int) -> list[str]:
    lines = (text.replace("\r\n", "\n") if "\r" in text else text).split("\n")
    if not lines[-1]:
        lines.pop()  # the text ends where a line ends
    if number == 1:
        lines[0] = lines[0].removeprefix("\ufeff")
    return lines


def _damages() -> tuple[type[Exception], ...]:
    """What reading a damaged file raises; the error of zstd is known only once its module is imported."""
    module = sys.modules.get(_ZSTD)
    return (EOFError, zlib.error, OSError, *([module.ZstdError] if module else []))


def _damaged(path: str | Path, error: Exception, line: int | None) -> CorpusError:
    compression = split_suffix(path)[1]
    if not compression:
        return CorpusError(path, f"cannot be read ({error})", line=line)
    if isinstance(error, EOFError):
        reason = "it ends too early"
    elif isinstance(error, gzip.BadGzipFile) and "Not a gzipped" in str(error):
        reason = "not gzip data"
    else:
        reason = str(error)
    return CorpusError(path, f"damaged {compression} file ({reason}); fetch or pack it again", line=line)


def _nearest_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f" (there is no folder {path.parent})"
    try:
        return nearest(path.name, sorted(os.listdir(path.parent)))
    except OSError:  # a folder that may be entered but not listed
        return ""
