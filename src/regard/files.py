"""Files: reading lines of text, plain or compressed, and writing files and folders atomically.

A file or folder is written as a draft beside its final path and gets its final name only when it is complete, so an
error, a full disk or a power cut never damages an existing file. Every error is one line that names the file.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import io
import os
import secrets
import shutil
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeVar, cast

from regard.errors import WRITE_ERRORS, CorpusError, RunError, SettingsError, UnwritableError, nearest
from regard.system import rename_folder, sync_folder

STDIN = "standard input"
BLOCK = 1 << 16  # number of bytes to read at a time
LONGEST_LINE = 1 << 26
"""Largest number of bytes in a line; without a limit, a file such as /dev/zero would fill the memory."""
DRAFT = ".part"
"""Suffix of drafts. The draft of "a.txt" is ".a.txt.1234-89abcdef.part": process id and random digits."""
ABANDONED = 60.0
"""Age in seconds. Writing a small file takes less time, so an older draft was left by a killed process."""

_ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"

Item = TypeVar("Item")
Opened = TypeVar("Opened")


class EmptyFileError(CorpusError):
    """Raised for a file that contains no text."""


# ---------------------------------------------------------------------------------------------------------------------
# Reading text


def split_suffix(path: str | Path) -> tuple[str, str]:
    """The suffixes of format and compression, in lower case: (".tsv", ".gz") for "a.tsv.gz"; "" if one is missing."""
    name = Path(path)
    compression = name.suffix.lower()
    if compression in (".gz", ".zst"):
        return name.with_suffix("").suffix.lower(), compression
    return compression, ""


def read_lines(path: str | Path) -> Iterator[str]:
    r"""Stream the lines of a UTF-8 file without their line ends.

    Only \n and \r\n end a line. U+2028, form feeds and similar characters are part of the text; otherwise the lines of
    two parallel files would no longer match. A byte order mark at the start of the file is dropped.
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
    """Stream the lines of standard input. Bytes that are not UTF-8 raise an error or, if `forgiving`, become U+FFFD."""
    with standard_input() as file:
        for lines in _read_blocks(file, STDIN, "replace" if forgiving else "strict"):
            yield from lines


def first_of(items: Iterator[Item]) -> list[Item]:
    """The first item of a stream from a file, as a list; an empty list if the file is empty."""
    try:
        return list(islice(items, 1))
    except EmptyFileError:
        return []


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in lists of `size` items; the last list may be shorter."""
    items = iter(items)
    while chunk := list(islice(items, size)):
        yield chunk


def is_typed() -> bool:
    """Whether standard input is a terminal, where the user types."""
    return sys.stdin is not None and sys.stdin.isatty()


@contextmanager
def standard_input() -> Iterator[BinaryIO]:
    """Context manager that yields standard input as a stream of bytes. Errors of reading become CorpusError."""
    if sys.stdin is None:  # closed by the parent process, as by <&- in a shell
        raise CorpusError(STDIN, "is closed; name a file, or pipe text in")
    try:
        yield sys.stdin.buffer
    except OSError as error:
        raise CorpusError(STDIN, f"cannot be read ({error.strerror})") from None


@contextmanager
def opened(path: str | Path, *, unpacked: bool = True) -> Iterator[BinaryIO]:
    """Open a file for reading bytes, decompressed if `unpacked`. Errors of opening and reading become CorpusError."""
    try:
        if os.path.isdir(path):
            raise CorpusError(path, "a folder, not a file; name a file")
        with open(path, "rb") as raw:
            status = os.fstat(raw.fileno())
            if stat.S_ISREG(status.st_mode) and not status.st_size:  # a pipe has no size
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
    """Import and return an optional module, or raise CorpusError if it is not installed.

    For the message: `path` is the file that needs the module, and `need` the purpose, e.g. "reading Parquet".
    """
    try:
        return import_module(module)
    except ImportError:
        package = module if module == _ZSTD else module.partition(".")[0]  # "backports" alone is no package
        raise CorpusError(path, f'{need} needs {package}: pip install "regard[formats]"') from None


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror}); check the permissions") from None


def _unpack(path: str | Path, raw: BinaryIO) -> BinaryIO:
    compression = split_suffix(path)[1]
    if compression == ".gz":
        return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=raw))))
    if compression == ".zst":
        return cast(BinaryIO, io.BufferedReader(require(_ZSTD, path, "reading .zst").ZstdFile(raw)))
    return raw


def _read_blocks(file: BinaryIO, where: str | Path, errors: str = "strict") -> Iterator[list[str]]:
    """Yield lists of lines of a file, because decoding many lines at once is faster.

    `where`: name of the file, for error messages. `errors`: as in `bytes.decode`.
    """
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
                problem = f"a line of more than {LONGEST_LINE >> 20} MB; not a text file, or its line ends are missing"
                raise CorpusError(where, problem, line=number)
    if begun:
        yield from _decode(b"".join(begun), where, number, errors)


def _decode(block: bytes, where: str | Path, number: int, errors: str) -> Iterator[list[str]]:
    """Decode a block of complete lines and yield the list of lines. `errors`: as in `bytes.decode`.

    If a line is not UTF-8, the lines before it are yielded, and then an error is raised. `where`: name of the file, for
    error messages. `number`: line number of the first line.
    """
    if number == 1 and errors == "strict" and _is_utf16(block):
        raise CorpusError(where, "UTF-16, not UTF-8; convert it, e.g. iconv -f utf-16 -t utf-8", line=1)
    try:
        text = block.decode(errors=errors)
    except UnicodeDecodeError as error:
        start = block.rfind(b"\n", 0, error.start) + 1
        good = _split(block[:start].decode(), number) if start else []
        if good:
            yield good
        byte = f"byte {error.start - start + 1} of the line is 0x{block[error.start]:02x}"
        problem = f"not UTF-8 ({byte}); convert the file, e.g. iconv -f latin1 -t utf-8"
        raise CorpusError(where, problem, line=number + len(good)) from None
    yield _split(text, number)


def _is_utf16(block: bytes) -> bool:
    """Whether bytes look like UTF-16: a byte order mark, or many zero bytes, mostly at even or at odd positions."""
    if block.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True
    head = block[:4096]
    fewer, more = sorted((head[::2].count(0), head[1::2].count(0)))
    return more > 1 and 20 * more >= len(head) and 10 * fewer <= more


def _split(text: str, number: int) -> list[str]:
    lines = (text.replace("\r\n", "\n") if "\r" in text else text).split("\n")
    if not lines[-1]:
        lines.pop()  # there is no line after the last line end
    if number == 1:
        lines[0] = lines[0].removeprefix("\ufeff")
    return lines


def _damages() -> tuple[type[Exception], ...]:
    """Exceptions that reading a damaged compressed file may raise; `ZstdError` only if the zstd module is imported."""
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
    except OSError:  # no permission to list the folder
        return ""


# ---------------------------------------------------------------------------------------------------------------------
# Writing files and folders atomically


def is_stream(path: Path) -> bool:
    """Whether the path is a device or a pipe, to which output is written directly, without a temporary file."""
    return path.exists() and not path.is_file() and not path.is_dir()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically: if writing fails, an existing file keeps its old content."""
    with _replacing([path], partial(_draft_of_bytes, content)):
        pass


@contextmanager
def atomic_files(paths: Sequence[Path], *, force: bool = False) -> Iterator[list[TextIO]]:
    """Open text files for writing; .gz and .zst are compressed. The files appear at `paths` when the `with` block ends.

    Existing files are an error, unless `force` is true.
    """
    refuse_existing(paths, force=force)
    for path in paths:
        if not path.parent.is_dir():
            raise SettingsError(f"{path}: there is no folder {path.parent}; create it first")
    with _replacing(paths, _draft_of_text) as files:
        yield files


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a new empty folder, which is moved to `path` when the `with` block ends; a folder there is replaced."""
    with _replacing([path], _draft_of_folder) as (folder,):
        yield folder


def remove_folder(path: Path) -> None:
    """Remove a folder atomically: if the process is killed meanwhile, the folder is either complete or gone."""
    home = draft_of(path)
    try:
        home.mkdir()
        rename_folder(path, home / path.name)
    except FileNotFoundError:
        pass
    finally:
        shutil.rmtree(home, ignore_errors=True)


def refuse_existing(paths: Sequence[Path], *, force: bool) -> None:
    """Raise an error if one of `paths` exists. With `force`, plain files are accepted, but not folders or devices."""
    for path in paths:
        if path.is_dir():
            raise SettingsError(f"{path}: a folder; name a file to write")
        if path.exists() and not path.is_file():
            raise SettingsError(f"{path}: not a plain file; choose another path")
        if path.exists() and not force:
            raise SettingsError(f"{path}: exists already; add --force to write over it")


def draft_of(path: Path) -> Path:
    """A new path beside `path` for its draft: the temporary file or folder that is renamed to `path` when complete."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{DRAFT}")


def remove_drafts(folder: Path, name: str = "*", *, older_than: float = 0.0, folders: bool = False) -> None:
    """Remove drafts (temporary files) that killed processes left in `folder`; if `folders`, temporary folders instead.

    `name`: pattern of the final names, e.g. "store". Drafts that were changed in the last `older_than` seconds are
    kept. All other drafts are removed, so the caller must know that no running process is writing them.
    """
    for path in folder.glob(f".{name}.*-*{DRAFT}"):
        with contextlib.suppress(OSError):
            if path.is_symlink() or time.time() - path.stat().st_mtime < older_than:
                continue
            if folders and path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif not folders and path.is_file():
                path.unlink()


def concerns(error: OSError, *drafts: Path) -> bool:
    """Whether an error comes from writing one of `drafts` (temporary files or folders).

    The error names a draft, or a file in it; or it names no file, and its errno is in `WRITE_ERRORS`.
    """
    if error.filename is None:
        return error.errno in WRITE_ERRORS
    failed = Path(os.fsdecode(error.filename))
    return any(failed == draft or draft in failed.parents for draft in drafts)


@contextmanager
def _replacing(
    paths: Sequence[Path], open_draft: Callable[[Path, Path], AbstractContextManager[Opened]]
) -> Iterator[list[Opened]]:
    """Open a draft (temporary file or folder) for each path. When the block ends, drafts are renamed to their paths.

    `open_draft(path, draft)` opens one draft. After an error, the drafts are removed. An error of writing a draft is
    raised as `UnwritableError`; other errors in the block are raised unchanged.
    """
    drafts, in_block = list(map(draft_of, paths)), False
    try:
        with ExitStack() as stack:
            opened = [stack.enter_context(open_draft(path, draft)) for path, draft in zip(paths, drafts, strict=True)]
            in_block = True
            yield opened
            in_block = False
        for path, draft in zip(paths, drafts, strict=True):
            _take_name(draft, path)
        for folder in {path.parent for path in paths}:
            sync_folder(folder)
    except OSError as error:
        if in_block and not concerns(error, *drafts):
            raise
        raise UnwritableError(f"{', '.join(map(str, paths))}: cannot be written ({error.strerror})") from None
    finally:
        for draft in drafts:
            shutil.rmtree(draft, ignore_errors=True)  # does nothing to a file
            with contextlib.suppress(OSError):
                draft.unlink()


@contextmanager
def _draft_of_bytes(content: bytes, path: Path, draft: Path) -> Iterator[None]:
    with draft.open("xb") as file:
        file.write(content)
        _sync(file)
    yield


@contextmanager
def _draft_of_text(path: Path, draft: Path) -> Iterator[TextIO]:
    with draft.open("xb") as raw:
        with _pack(path, raw) as packed:
            text = io.TextIOWrapper(packed, encoding="utf-8", newline="\n")
            try:
                yield text
            finally:
                text.detach()  # closing it would close the file before it is synced
        _sync(raw)


@contextmanager
def _draft_of_folder(path: Path, draft: Path) -> Iterator[Path]:
    folder = draft / path.name
    folder.mkdir(parents=True)
    yield folder
    for place, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(place, name), "r+b") as file:
                _sync(file)
        sync_folder(Path(place))


def _pack(path: Path, raw: BinaryIO) -> AbstractContextManager[BinaryIO]:
    compression = split_suffix(path)[1]
    if compression == ".gz":
        # No time and no name inside: the same text gives the same bytes.
        return cast(AbstractContextManager[BinaryIO], gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0))
    if compression == ".zst":
        zstd = require(_ZSTD, path, "writing .zst")
        return cast(AbstractContextManager[BinaryIO], zstd.ZstdFile(raw, "w"))
    return nullcontext(raw)


def _sync(file: BinaryIO) -> None:
    """Flush the content of an open file to the disk, so that it survives a power cut."""
    file.flush()
    os.fsync(file.fileno())


def _take_name(draft: Path, path: Path) -> None:
    """Rename the file `draft`, or the folder `path.name` in the folder `draft`, to `path`, which is replaced."""
    if not draft.is_dir():
        os.replace(draft, path)
        return
    while True:  # again if another process creates the folder between the two renames
        replaced = draft / f"{path.name}.replaced"
        with contextlib.suppress(FileNotFoundError):
            rename_folder(path, replaced)
        try:
            os.rename(draft / path.name, path)
            return
        except OSError as error:
            with contextlib.suppress(OSError):
                os.rename(replaced, path)
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        finally:
            shutil.rmtree(replaced, ignore_errors=True)
