"""Sentence-embedding models from a folder: a tiny random BERT, and what such a folder may lack."""

import json
import shutil

import numpy as np
import pytest
import torch

import regard
from regard.cli import main
from regard.errors import SettingsError
from regard.tasks.retrieve.embedding import FolderEmbedder
from regard.tasks.retrieve.settings import RetrieveSettings
from tests.small_knowledge import write_faq

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "when", "do", "you", "open", "card", "pay", "by", "can", "i", "cake"]


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="transformers is in the dev extra")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, transformers):
    place = tmp_path_factory.mktemp("bert")
    (place / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    transformers.BertTokenizer(str(place / "vocab.txt")).save_pretrained(place)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24
    )
    transformers.BertModel(config).save_pretrained(place)
    return place


def test_vectors_are_means_of_length_one(folder, transformers):
    embedder = FolderEmbedder(folder, RetrieveSettings())
    texts = ["when do you open", "card", "", "pay by card " * 100]
    vectors = embedder.encode(texts)
    assert vectors.shape == (4, 16)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(embedder.encode(["card"])[0], vectors[1], atol=1e-5)  # whatever is read beside it
    model, tokenizer = (
        transformers.BertModel.from_pretrained(folder),
        transformers.BertTokenizer.from_pretrained(folder),
    )
    with torch.no_grad():
        states = model.eval()(**tokenizer("card", return_tensors="pt")).last_hidden_state[0]
    mean = states.mean(0) / states.mean(0).norm()
    np.testing.assert_allclose(vectors[1], mean.numpy(), atol=1e-5)


def test_the_first_state_where_the_folder_says_so(folder, tmp_path):
    other = tmp_path / "cls"
    shutil.copytree(folder, other)
    (other / "1_Pooling").mkdir()
    pooling = other / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps({"word_embedding_dimension": 16, "pooling_mode_cls_token": True}))
    first, mean = FolderEmbedder(other, RetrieveSettings()), FolderEmbedder(folder, RetrieveSettings())
    assert not np.allclose(first.encode(["card"]), mean.encode(["card"]), atol=1e-3)
    pooling.write_text(json.dumps({"pooling_mode_max_tokens": True}))
    with pytest.raises(SettingsError, match="pooling_mode_max_tokens"):
        FolderEmbedder(other, RetrieveSettings())


def test_a_run_that_uses_it(folder, tmp_path, capsys):
    run = tmp_path / "faq"
    assert main(["index", "--create", str(run), str(write_faq(tmp_path / "faq.md")), "--encoder", str(folder)]) == 0
    assert "4 questions with 4 answers" in capsys.readouterr().out
    retriever = regard.load(run)
    [[best, *_]] = retriever.search("can i pay by card", k=3)
    assert best.question == "Can I pay by card?"
    assert best.dense is not None
    assert best.bm25 is not None
    assert (run / "vectors.safetensors").is_file()
    other = np.asarray(retriever.index.vectors)
    np.testing.assert_array_equal(other, regard.load(run).index.vectors)


def test_what_a_folder_may_lack(folder, tmp_path):
    with pytest.raises(SettingsError, match=r"no config\.json"):
        FolderEmbedder(tmp_path, RetrieveSettings())
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(SettingsError, match="cannot be opened"):
        FolderEmbedder(tmp_path, RetrieveSettings())


def test_pickled_weights_are_refused(folder, tmp_path, transformers):
    for name in ("config.json", "vocab.txt", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    torch.save(transformers.BertModel.from_pretrained(folder).state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(SettingsError, match="cannot be opened"):
        FolderEmbedder(tmp_path, RetrieveSettings())
