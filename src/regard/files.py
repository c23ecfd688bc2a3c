"""Files: lines of text in, plain or compressed; whole files and folders out.

Everything that is written takes its name only when it is complete. Until then it is a draft beside its place, so that
an error, a full disk or a power cut leaves what was there before. Every problem is reported in one line with its place.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeVar, cast

from regard.errors import CorpusError, RunError, SettingsError, UnwritableError, nearest
from regard.system import rename_folder, sync_folder

STDIN = "standard input"
BLOCK = 1 << 16
"""Bytes that are read at a time."""
LONGEST_LINE = 1 << 26
"""Bytes; without a limit, a file such as /dev/zero would fill the memory."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Errors of a write that name no file: the disk or the quota is full, the file too large, the disk read-only."""
DRAFT = ".part"
"""Suffix of drafts. The name of a draft starts with a dot and the name that it will get."""
ABANDONED = 60.0
"""Seconds after which a draft of a small file cannot belong to a running process any more."""

_ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"

Item = TypeVar("Item")
Opened = TypeVar("Opened")


class EmptyFileError(CorpusError):
    """A file without a single byte of text."""


# ---------------------------------------------------------------------------------------------------------------------
# Reading text


def split_suffix(path: str | Path) -> tuple[str, str]:
    """The suffixes of the format and of the compression, in lower case: "a.tsv.gz" gives ".tsv" and ".gz"."""
    name = Path(path)
    compression = name.suffix.lower()
    if compression in (".gz", ".zst"):
        return name.with_suffix("").suffix.lower(), compression
    return compression, ""


def read_lines(path: str | Path) -> Iterator[str]:
    r"""Stream the lines of a UTF-8 file without their line ends.

    Only \n and \r\n end a line. U+2028, form feeds and similar characters are text, so that the lines of two parallel
    files keep matching. A byte order mark at the start of the file is dropped.
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
    """The lines of standard input, maybe none; `forgiving`: bytes that are not UTF-8 are read as U+FFFD."""
    with standard_input() as file:
        for lines in _read_blocks(file, STDIN, "replace" if forgiving else "strict"):
            yield from lines


def first_of(items: Iterator[Item]) -> list[Item]:
    """A list of the first item that is read from a file; an empty list if the file is empty."""
    try:
        return list(islice(items, 1))
    except EmptyFileError:
        return []


def is_typed() -> bool:
    """Whether standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


@contextmanager
def standard_input() -> Iterator[BinaryIO]:
    """The bytes of standard input. Any failure is reported as a CorpusError."""
    if sys.stdin is None:  # closed by the parent process, as by <&- in a shell
        raise CorpusError(STDIN, "is closed; name a file, or pipe text in")
    try:
        yield sys.stdin.buffer
    except OSError as error:
        raise CorpusError(STDIN, f"cannot be read ({error.strerror})") from None


@contextmanager
def opened(path: str | Path, *, unpacked: bool = True) -> Iterator[BinaryIO]:
    """The bytes of a file. Any failure, up to the last byte, is reported as a CorpusError."""
    try:
        if os.path.isdir(path):
            raise CorpusError(path, "a folder, not a file")
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
    """Import an optional module, or report which extra installs it."""
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
        raise RunError(f"{path}: cannot read ({error.strerror})") from None


def _unpack(path: str | Path, raw: BinaryIO) -> BinaryIO:
    compression = split_suffix(path)[1]
    if compression == ".gz":
        return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=raw))))
    if compression == ".zst":
        return cast(BinaryIO, io.BufferedReader(require(_ZSTD, path, "reading .zst").ZstdFile(raw)))
    return raw


def _read_blocks(file: BinaryIO, where: str | Path, errors: str = "strict") -> Iterator[list[str]]:
    """The lines of a file, block by block: decoding many lines together is twice as fast as one by one."""
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
    """The lines of a block, which ends at the end of a line. Lines before one that is not UTF-8 are given first."""
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
    """Whether a file starts as UTF-16: with its mark, or with zeros at every second place (in spaces and digits)."""
    if block.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True
    head = block[:4096]
    fewer, more = sorted((head[::2].count(0), head[1::2].count(0)))
    return more > 1 and 20 * more >= len(head) and 10 * fewer <= more


def _split(text: str, number: int) -> list[str]:
    lines = (text.replace("\r\n", "\n") if "\r" in text else text).split("\n")
    if not lines[-1]:
        lines.pop()  # the text ends with a line end
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
    except OSError:  # a folder without permission to list it
        return ""


# ---------------------------------------------------------------------------------------------------------------------
# Writing files and folders as a whole


def is_stream(path: Path) -> bool:
    """Whether the path is a device, a pipe or a terminal, which is written into and never replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it holds all of the content, or what was there before."""
    with _replacing([path], partial(_draft_of_bytes, content)):
        pass


@contextmanager
def atomic_files(paths: Sequence[Path], *, force: bool = False) -> Iterator[list[TextIO]]:
    """Open text files, packed if they end in .gz or .zst, that replace existing ones (`force`) at the end."""
    refuse_existing(paths, force=force)
    for path in paths:
        if not path.parent.is_dir():
            raise SettingsError(f"{path}: there is no folder {path.parent}")
    with _replacing(paths, _draft_of_text) as files:
        yield files


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A folder to fill. When the block ends, it replaces what was there; until then it has its name in a draft."""
    with _replacing([path], _draft_of_folder) as (folder,):
        yield folder


def remove_folder(path: Path) -> None:
    """Remove a folder. If the process is killed meanwhile, the folder is either complete or gone."""
    home = draft_of(path)
    try:
        home.mkdir()
        rename_folder(path, home / path.name)
    except FileNotFoundError:
        pass
    finally:
        shutil.rmtree(home, ignore_errors=True)


def refuse_existing(paths: Sequence[Path], *, force: bool) -> None:
    """Refuse to write over what exists. With `force`, only over what is not a plain file."""
    for path in paths:
        if path.is_dir():
            raise SettingsError(f"{path}: a folder; name a file to write")
        if path.exists() and not path.is_file():
            raise SettingsError(f"{path}: not a plain file; name another to write")
        if path.exists() and not force:
            raise SettingsError(f"{path}: exists already; add --force to write over it")


def draft_of(path: Path) -> Path:
    """An unused name beside a file or folder, to write into until the content is complete."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{DRAFT}")


def remove_drafts(folder: Path, name: str = "*", *, older_than: float = 0.0, folders: bool = False) -> None:
    """Remove files, or `folders`, that a killed process left unfinished; call it where no process can be writing them.

    `name` is a pattern of their final names. Those written to in the last `older_than` seconds stay.
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
    """Whether a write to one of these drafts failed: the error names it, or names no file and is one of `FULL`."""
    if error.filename is None:
        return error.errno in FULL
    failed = Path(os.fsdecode(error.filename))
    return any(failed == draft or draft in failed.parents for draft in drafts)


@contextmanager
def _replacing(
    paths: Sequence[Path], open_draft: Callable[[Path, Path], AbstractContextManager[Opened]]
) -> Iterator[list[Opened]]:
    """Write drafts, and give each its name when the block ends without an error; remove them otherwise.

    `open_draft` takes a path and its draft. Errors of the block that do not concern the drafts are raised as they are.
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
                text.detach()  # closing it would close the file, which has yet to be synced
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
    """Make sure that the content survives a power cut."""
    file.flush()
    os.fsync(file.fileno())


def _take_name(draft: Path, path: Path) -> None:
    """Put a finished draft in the place of what is there."""
    if not draft.is_dir():
        os.replace(draft, path)
        return
    while True:  # until no other process puts its folder there between the two steps
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
