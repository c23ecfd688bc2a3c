"""Text files as they lie on disk: plain, .gz or .zst, with everything that can be wrong with them told in one line."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from regard.errors import CorpusError, nearest

COMPRESSIONS = (".gz", ".zst")
STDIN = "standard input"
_ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


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
            for count, raw in enumerate(file, 1):
                yield _decode_line(path, raw, count)
        except _damages() as error:
            raise _damaged(path, error, count + 1) from None
    if not count:
        raise CorpusError(path, "the file is empty")


def read_input_lines(*, forgiving: bool = False) -> Iterator[str]:
    """The lines of standard input, as `read_lines` gives those of a file; there may be none.

    `forgiving`: what is not UTF-8 is read as U+FFFD.
    """
    with standard_input() as file:
        for number, raw in enumerate(file, 1):
            text = raw.decode(errors="replace").encode() if forgiving else raw
            yield _decode_line(STDIN, text, number)


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
                raise CorpusError(path, "the file is empty")
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


def read_json(line: str, path: str | Path, number: int) -> Any:
    """What a line of a JSON lines file holds."""
    try:
        return json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        reason = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else "too deep"
        raise CorpusError(path, f"broken JSON ({reason})", line=number) from None


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


def _decode_line(path: str | Path, raw: bytes, number: int) -> str:
    if raw.endswith(b"\n"):
        raw = raw[:-2] if raw.endswith(b"\r\n") else raw[:-1]
    try:
        line = raw.decode()
    except UnicodeDecodeError as error:
        if number == 1 and raw.startswith(_UTF16_MARKS):
            problem = "UTF-16, not UTF-8; convert it, e.g. iconv -f utf-16 -t utf-8"
        else:
            byte = f"byte {error.start + 1} of the line is 0x{raw[error.start]:02x}"
            problem = f"not UTF-8 ({byte}); convert the file, e.g. iconv -f latin1 -t utf-8"
        raise CorpusError(path, problem, line=number) from None
    return line.removeprefix("\ufeff") if number == 1 else line


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
