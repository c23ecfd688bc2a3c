"""The store of series, and normalization."""

import numpy as np
import pytest

from regard.data.frame_store import Normalization, open_frames, write_frames
from regard.data.series import Series
from regard.data.store import StorePart
from regard.errors import RunError

ONE = Series(np.arange(8, dtype=np.float32).reshape(4, 2), ("a", "b", "b", "a"), "one")
WHOLE = Series(np.ones((3, 2), np.float32), ("c",), "whole")


def test_series_come_back_as_they_were(tmp_path):
    write_frames(tmp_path / "store", [ONE, WHOLE], ["a", "b", "c"], 2, [StorePart(2, 0.5)])
    store = open_frames(tmp_path / "store")
    assert (len(store), store.width, store.weights) == (2, 2, (StorePart(2, 0.5),))
    for place, expected in enumerate((ONE, WHOLE)):
        assert np.array_equal(store[place].frames, expected.frames)
        assert store[place][1:] == expected[1:]
    frames, labels = store.part(0, 1, 3)
    assert np.array_equal(frames, ONE.frames[1:3])
    assert labels.tolist() == [1, 1]
    assert store.part(1, 1, 3)[1].tolist() == [2]
    assert store.label_counts().tolist() == [2, 2, 1]
    with pytest.raises(IndexError, match="series 2 does not exist"):
        store[2]
    store.close()
    write_frames(tmp_path / "none", [], [], 2)
    assert len(open_frames(tmp_path / "none")) == 0


@pytest.mark.parametrize("name", ["frames.npy", "labels.npy", "offsets.npy", "names.json"])
def test_a_damaged_store_is_one_clear_line(tmp_path, name):
    write_frames(tmp_path / "store", [ONE], ["a", "b"], 2)
    (tmp_path / "store" / name).write_bytes(b"x")
    with pytest.raises(RunError, match=r"cannot read the stored series .* remove its folder"):
        open_frames(tmp_path / "store")


def test_normalization_is_precise_and_comes_back(tmp_path):
    chance = np.random.default_rng(1)
    parts = [(1e6 + chance.normal(size=(500, 1)) * (1, 20, 0)).astype(np.float32) for _ in range(3)]
    together = np.concatenate(parts)
    found = Normalization.of(parts)
    assert found.mean_F == pytest.approx(together.astype(np.float64).mean(0))
    assert found.deviation_F[:2] == pytest.approx(together.astype(np.float64).std(0)[:2], rel=1e-4)
    assert found.deviation_F[2] == 1  # constant
    again = Normalization.from_json(found.to_json(), "file")
    assert all(np.array_equal(one, other) for one, other in zip(found, again, strict=True))
    normalized = found.apply(together)
    assert normalized.dtype == np.float32
    assert np.abs(normalized.std(0) - (1, 1, 0)).max() < 0.1
    for content in (b"", b"[]", b'{"mean": [0], "deviation": [0]}', b'{"mean": [0], "deviation": [1, 1]}'):
        with pytest.raises(RunError, match="file: not a normalization"):
            Normalization.from_json(content, "file")
