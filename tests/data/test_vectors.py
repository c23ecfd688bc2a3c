"""Files of word vectors: the formats, and what is wrong with damaged ones."""

import gzip
import struct

import numpy as np
import pytest

from regard.data.vectors import binary_parts, read_vectors, text_lines
from regard.errors import CorpusError

VECTORS = {"the": [0.5, -1.0], "città": [1e-7, 3.0]}
MATRIX = np.array(list(VECTORS.values()), np.float32)
TEXT = "the 0.5 -1\ncittà 1e-7 3\n"


def binary(*entries, header="2 2"):
    return f"{header}\n".encode() + b"".join(
        word.encode() + b" " + struct.pack(f"<{len(numbers)}f", *numbers) + b"\n" for word, numbers in entries
    )


GOOD = {
    "glove.txt": TEXT.encode(),
    "word2vec.vec": f"2 2\n{TEXT}".encode(),
    "trailing.vec": "2 2\nthe 0.5 -1 \ncittà 1e-7 3 \n".encode(),  # fastText ends its lines with a space
    "packed.vec.gz": gzip.compress(f"2 2\n{TEXT}".encode()),
    "one.bin": binary(*VECTORS.items()),
    "packed.bin.gz": gzip.compress(binary(*VECTORS.items())),
}


@pytest.mark.parametrize("name", GOOD)
def test_all_formats_hold_the_same_vectors(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(GOOD[name])
    found = read_vectors(path)
    assert (found.words, found.width, found.duplicates) == (2, 2, 0)
    assert list(found.vectors) == list(VECTORS)
    np.testing.assert_array_equal(np.stack(list(found.vectors.values())), MATRIX)
    some = read_vectors(path, {"città", "absent"})
    assert list(some.vectors) == ["città"]
    assert some.words == 2


def test_what_is_written_is_read(tmp_path):
    matrix = np.random.default_rng(1).standard_normal((3, 5)).astype(np.float32)
    words = ["a", "b,", "ü"]
    (tmp_path / "v.txt").write_text("".join(text_lines(words, matrix)), encoding="utf-8")
    (tmp_path / "v.bin").write_bytes(b"".join(binary_parts(words, matrix)))
    for name, tolerance in (("v.txt", 1e-6), ("v.bin", 0)):
        found = read_vectors(tmp_path / name).vectors
        assert list(found) == words
        np.testing.assert_allclose(np.stack(list(found.values())), matrix, atol=tolerance)


def test_words_with_spaces_and_duplicates(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("the 0.5 -1\n. . . 1 2\nthe 7 8\n")  # GloVe has such a word
    found = read_vectors(path)
    assert list(found.vectors) == ["the", ". . ."]
    assert found.vectors["the"].tolist() == [0.5, -1.0]
    assert found.duplicates == 1


BAD = {
    "a longer line": ("a.vec", b"the 1 2\nof 1 2 3\n", "a.vec:2: a vector of 3 numbers, but the others have 2"),
    "a shorter line": ("a.vec", b"the 1 2\nof 1\n", "a.vec:2: a vector of 1 numbers"),
    "no number": ("a.vec", b"the 1 2\nof 1 x\n", 'a.vec:2: the vector of "of" is not 2 numbers'),
    "NaN": ("a.vec", b"the 1 2\nof 1 nan\n", 'a.vec:2: the vector of "of" contains NaN'),
    "infinity": (
        "a.bin",
        binary(("the", [1.0, float("inf")]), header="1 2"),
        'the vector of "the" contains NaN or inf',
    ),
    "too many stated": ("a.vec", b"9 2\nthe 1 2\n", "the first line says 9 words, but there are 1"),
    "too few stated": ("a.vec", b"1 2\nthe 1 2\nof 1 2\n", "the first line says 1 words, but there are 2"),
    "another width stated": ("a.vec", b"1 3\nthe 1 2\n", "a.vec:2: a vector of 2 numbers, but the others have 3"),
    "a huge width": (
        "a.vec",
        b"1 99999999999\nthe 1 2\n",
        "vectors of 99,999,999,999 numbers; widths from 1 to 65,536",
    ),
    "a huge binary width": ("a.bin", b"1 99999999999\nthe ", "vectors of 99,999,999,999 numbers"),
    "a huge binary number": ("a.bin", b"99999999999 2\nthe 12345678\n", "ends in word 2 of 99,999,999,999"),
    "cut short": ("a.bin", binary(*VECTORS.items())[:-4], "the file ends in word 2 of 2; it was cut short"),
    "cut in a word": ("a.bin", b"2 2\nthe", "the file ends in word 1 of 2"),
    "more than stated": ("a.bin", binary(*VECTORS.items(), header="1 2"), "says 1 words, but there are more"),
    "no word ends": ("a.bin", b"1 2\n" + b"x" * 5000, "longer than 1,000 bytes"),
    "text named .bin": ("a.bin", b"the 1 2\n", "not word2vec's binary format"),
    "fastText's model": ("a.bin", b"\xba\x16\x4f\x2f\x0c\x00", "give its vectors, the file that ends in .vec"),
    "a text": ("a.txt", b"Hello\nworld\n", "not vectors"),
    "only a header": ("a.vec", b"0 2\n", "there are no vectors in this file"),
    "empty": ("a.vec", b"", "the file is empty"),
    "not UTF-8": ("a.vec", b"the 1 2\n\xff\xfe\xfd 1 2\n", "a.vec"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_damaged_file_is_one_line(tmp_path, case):
    name, content, message = BAD[case]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(CorpusError) as raised:
        read_vectors(path)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
