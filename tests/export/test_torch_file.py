"""Reading `pytorch_model.bin`: only floating-point tensors by name are accepted, and no code of the file runs."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import RunError
from regard.export.marian_import import read_torch_file


@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_come_out_as_they_went_in(zipped: bool, tmp_path: Path) -> None:
    big = torch.randn(6, 4)
    weights = OrderedDict(
        plain=torch.randn(3, 5),
        half=torch.randn(7).half(),
        brain=torch.randn(2, 2).bfloat16(),
        turned=big.T,
        part=big[2:4, 1:],
        shared=big,
        scalar=torch.tensor(2.5),
        parameter=torch.randn(2),
    )
    weights._metadata = {"": {"version": 1}}  # type: ignore[attr-defined]  # as modules leave it
    torch.save(weights, tmp_path / "w.bin", _use_new_zipfile_serialization=zipped)
    read = read_torch_file(tmp_path / "w.bin")
    assert read.keys() == weights.keys()
    for name, weight in weights.items():
        assert read[name].dtype == weight.dtype
        assert torch.equal(read[name], weight)


class Evil:
    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("protocol", [2, 4])
def test_a_program_in_a_file_is_refused_and_not_run(zipped: bool, protocol: int, tmp_path: Path) -> None:
    marker = tmp_path / "was-run"
    weights = {"a": torch.zeros(2), "b": Evil(marker)}
    path = tmp_path / "w.bin"
    torch.save(weights, path, _use_new_zipfile_serialization=zipped, pickle_protocol=protocol)
    with pytest.raises(RunError, match=r"w\.bin: ") as refused:
        read_torch_file(path)
    assert "\n" not in str(refused.value)
    assert not marker.exists()


def zip_of(pickled: bytes, compression: int = zipfile.ZIP_STORED, **numbers: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", "3\n")
        for key, raw in numbers.items():
            archive.writestr(f"archive/data/{key.removeprefix('n')}", raw)
    return content.getvalue()


def tensor_pickle(
    shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0, storage: str = "FloatStorage"
) -> bytes:
    """A pickle of {"x": tensor over the numbers "0"}, written by hand."""

    class Storage(pickle.Pickler):
        def persistent_id(self, thing: Any) -> Any:
            return ("storage", getattr(torch, storage), "0", "cpu", 4) if thing == "numbers" else None

    class Tensor:
        def __reduce__(self) -> Any:
            return torch._utils._rebuild_tensor_v2, ("numbers", offset, shape, strides, False, OrderedDict())

    content = io.BytesIO()
    Storage(content, protocol=2).dump({"x": Tensor()})
    return content.getvalue()


NUMBERS = torch.arange(4.0).numpy().tobytes()


def test_the_handwritten_pickle_is_a_tensor(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(zip_of(tensor_pickle((2, 2), (2, 1)), n0=NUMBERS))
    assert read_torch_file(tmp_path / "w.bin")["x"].tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"not a torch file at all", id="text"),
        pytest.param(zip_of(tensor_pickle((3, 2), (2, 1)), n0=NUMBERS), id="shape beyond the numbers"),
        pytest.param(zip_of(tensor_pickle((2,), (1,), offset=3), n0=NUMBERS), id="offset beyond the numbers"),
        pytest.param(zip_of(tensor_pickle((2,), (-1,), offset=1), n0=NUMBERS), id="negative stride"),
        pytest.param(zip_of(tensor_pickle((2,), (1,), offset=-1), n0=NUMBERS), id="negative offset"),
        pytest.param(zip_of(tensor_pickle((10**12,), (0,)), n0=NUMBERS), id="a trillion numbers out of four"),
        pytest.param(zip_of(tensor_pickle((2,), (1,), storage="IntStorage"), n0=NUMBERS), id="whole numbers"),
        pytest.param(zip_of(tensor_pickle((2,), (1,))), id="no numbers"),
        pytest.param(zip_of(tensor_pickle((4,), (1,)), zipfile.ZIP_DEFLATED, n0=NUMBERS), id="compressed entries"),
        pytest.param(zip_of(tensor_pickle((2,), (1,))[:-4], n0=NUMBERS), id="cut short"),
        pytest.param(zip_of(pickle.dumps({"x": {1, 2}})), id="a set"),
        pytest.param(zip_of(b"cos\nsystem\n(S'id'\ntR."), id="a call written by hand"),
        pytest.param(zip_of(b"\x80\x02cbuiltins\neval\nX\x02\x00\x00\x0011\x85R."), id="eval"),
        pytest.param(zip_of(b"(S'1'\nios\nsystem\n."), id="instance"),
    ],
)
def test_everything_else_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(content)
    with pytest.raises(RunError, match=r"w\.bin: .*safetensors") as refused:
        read_torch_file(tmp_path / "w.bin")
    assert "\n" not in str(refused.value)


def test_compressed_entries_are_named_as_the_reason(tmp_path: Path) -> None:
    content = zip_of(tensor_pickle((4,), (1,)), zipfile.ZIP_DEFLATED, n0=NUMBERS)
    (tmp_path / "w.bin").write_bytes(content)
    with pytest.raises(RunError, match="compressed"):
        read_torch_file(tmp_path / "w.bin")
