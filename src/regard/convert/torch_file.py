"""Reading `pytorch_model.bin` without unpickling it.

A torch file is a pickle that describes tensors, and the raw numbers beside it: in a zip archive, or, before torch 1.6,
one after the other. A pickle is a program; Python's machine for it calls whatever it names. The machine here knows the
few instructions that a dictionary of tensors takes, calls nothing, and refuses everything else.
"""

from __future__ import annotations

import io
import math
import pickletools
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import torch
from torch import Tensor

from regard.errors import RunError

STORAGES = {
    f"torch {name}Storage": kind
    for name, kind in {"Float": torch.float32, "Half": torch.float16, "BFloat16": torch.bfloat16}.items()
}
ORDERED_DICT, REBUILD = "collections OrderedDict", "torch._utils _rebuild_tensor_v2"


class _Name(str):
    """A thing that the file names. It stays a name."""


class _Stored(NamedTuple):
    """Numbers that lie elsewhere in the file."""

    kind: torch.dtype
    key: str
    size: int


class _View(NamedTuple):
    """A tensor: where it starts in its numbers, and its shape and strides there."""

    stored: _Stored
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_torch_file(path: Path) -> dict[str, Tensor]:
    """The tensors of a torch file, by name."""
    try:
        with path.open("rb") as file:
            zipped = zipfile.is_zipfile(file)
            file.seek(0)
            views, numbers = _read_zip(file) if zipped else _read_legacy(file)
            return {str(name): _tensor(view, numbers) for name, view in views.items() if isinstance(view, _View)}
    except RunError as error:
        raise RunError(f"{path}: {error}; nothing was run. Ask for model.safetensors instead") from None
    except Exception as error:  # whatever a damaged or hostile file leads to
        raise RunError(f"{path}: not a torch file of plain weights ({type(error).__name__}); use safetensors") from None


def _read_zip(file: BinaryIO) -> tuple[dict[str, Any], Callable[[_Stored], bytes]]:
    archive = zipfile.ZipFile(io.BytesIO(file.read()))
    [pickled] = [name for name in archive.namelist() if name.endswith("/data.pkl")]
    folder = pickled.removesuffix("data.pkl")
    return _run(io.BytesIO(archive.read(pickled))), lambda stored: archive.read(f"{folder}data/{stored.key}")


def _read_legacy(file: BinaryIO) -> tuple[dict[str, Any], Callable[[_Stored], bytes]]:
    """Five pickles (a number, a version, the machine, the tensors, the keys of their numbers), then the numbers."""
    _magic, _version, _machine, views, keys = (_run(file) for _ in range(5))
    sizes = {view.stored.key: view.stored for view in views.values() if isinstance(view, _View)}
    numbers = {}
    for key in keys:
        count = int.from_bytes(file.read(8), "little")
        numbers[key] = file.read(count * sizes[key].kind.itemsize)
    return views, lambda stored: numbers[stored.key]


def _tensor(view: _View, numbers: Callable[[_Stored], bytes]) -> Tensor:
    flat = torch.frombuffer(bytearray(numbers(view.stored)), dtype=view.stored.kind)
    last = view.offset + sum((size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True))
    inside = min(*view.shape, *view.strides, view.offset, 0) == 0 and last < len(flat)
    if not inside or math.prod(view.shape) > len(flat):
        raise RunError("a tensor reaches beyond its numbers")
    return flat.as_strided(view.shape, view.strides, view.offset).clone()


def _run(file: BinaryIO) -> Any:
    """Follow one pickle and give what it describes."""
    stack: list[Any] = []
    marks: list[int] = []
    memory: dict[int, Any] = {}

    def since_mark() -> list[Any]:
        start = marks.pop()
        taken = stack[start:]
        del stack[start:]
        return taken

    for code, argument, _ in pickletools.genops(file):
        name, value = code.name, cast(Any, argument)
        if name == "STOP":
            return stack.pop()
        if name in ("PROTO", "FRAME"):
            pass
        elif name == "MARK":
            marks.append(len(stack))
        elif name in ("BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1"):
            stack.append(value)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name]())
        elif name == "GLOBAL":
            stack.append(_Name(value))
        elif name in ("BINPUT", "LONG_BINPUT"):
            memory[value] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memory[value])
        elif name in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"):
            taken = since_mark() if name == "TUPLE" else [stack.pop() for _ in range(int(name[-1]))][::-1]
            stack.append(tuple(taken))
        elif name == "APPENDS":
            taken = since_mark()
            stack[-1].extend(taken)
        elif name in ("SETITEM", "SETITEMS"):
            taken = since_mark() if name == "SETITEMS" else [stack.pop() for _ in range(2)][::-1]
            stack[-1].update(zip(taken[::2], taken[1::2], strict=True))
        elif name == "BINPERSID":
            stack.append(_stored(stack.pop()))
        elif name == "REDUCE":
            arguments, called = stack.pop(), stack.pop()
            stack.append(_describe(called, arguments))
        elif name == "BUILD":
            stack.pop()  # what modules remember of their versions
        else:
            raise RunError(f"its pickle holds the instruction {name}, which weights do not need")
    raise RunError("its pickle has no end")


_CONSTANTS: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "NONE": lambda: None,
    "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
}  # fmt: skip


def _stored(identity: tuple[Any, ...]) -> _Stored:
    kind, name, key, _place, count, *_ = identity
    if kind != "storage" or name not in STORAGES:
        raise RunError(f'its pickle names "{name}", which is not among the kinds of numbers that weights have')
    return _Stored(STORAGES[name], str(key), int(count))


def _describe(called: Any, arguments: tuple[Any, ...]) -> Any:
    if isinstance(called, _Name) and called == ORDERED_DICT and not arguments:
        return {}
    if isinstance(called, _Name) and called == REBUILD:
        stored, offset, shape, strides, *_ = arguments
        return _View(stored, offset, shape, strides)
    raise RunError(f'its pickle calls "{called}", which weights do not need')
