"""Subwords with ids from a table."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import sentencepiece

from regard.errors import TokenizerError
from regard.text.subword import MappedTokenizer
from regard.text.tokenizer import UNK, load_tokenizer


@pytest.fixture(scope="module")
def model() -> bytes:
    content = io.BytesIO()
    lines = ["the cat sat on the mat", "a cat on a mat", "fine cats sit", "the mat, the cat"] * 10
    sentencepiece.SentencePieceTrainer.train(  # BPE: which pieces unigram keeps depends on the version
        sentence_iterator=iter(lines),
        model_writer=content,
        model_type="bpe",
        vocab_size=40,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return content.getvalue()


@pytest.fixture(scope="module")
def tokenizer(model: bytes) -> MappedTokenizer:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = [processor.id_to_piece(id) for id in range(3, processor.get_piece_size())]
    return MappedTokenizer([">>de<<", *sorted(pieces), "only-in-the-table"], model)


@pytest.mark.parametrize(
    "text", ["the cat", "  the   mat, ", "ﬁne cat", "", ">>de<< the cat", ">>de<<the cat", ">>de<<"]
)
def test_decode_gives_back_the_normal_form(tokenizer: MappedTokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == tokenizer.normalize(text)


def test_sentencepieces_own_rules_apply(tokenizer: MappedTokenizer) -> None:
    assert tokenizer.normalize("  ﬁne\u3000cat ") == "fine cat"  # compatibility folding, which ours would not do
    assert [tokenizer.token(id) for id in tokenizer.encode("the")] == ["▁the"]
    assert [tokenizer.token(id) for id in tokenizer.encode(">>de<< the")] == [">>de<<", "▁the"]


def test_what_the_table_lacks_is_unknown(tokenizer: MappedTokenizer, model: bytes) -> None:
    assert UNK in tokenizer.encode("cat Ж")
    smaller = MappedTokenizer([token for token in tokenizer.tokens[3:-1] if token != "▁the"], model)
    assert smaller.encode("the") == [UNK]
    assert smaller.token(smaller.encode(">>fr<<")[0]) != ">>fr<<"


def test_bytes_of_the_table_spell_characters(model: bytes) -> None:
    tokenizer = MappedTokenizer(["<0xC3>", "<0xA9>", "▁x"], model)
    assert tokenizer.decode([5, 3, 4]) == "xé"


def test_save_and_load(tokenizer: MappedTokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path, "source")
    loaded = load_tokenizer(tmp_path, "source")
    assert isinstance(loaded, MappedTokenizer)
    assert loaded.hash() == tokenizer.hash()
    assert loaded.encode("the cat sat") == tokenizer.encode("the cat sat")
    (tmp_path / "source.model").write_bytes(b"nonsense")
    with pytest.raises(TokenizerError, match="not a SentencePiece model"):
        load_tokenizer(tmp_path, "source")
