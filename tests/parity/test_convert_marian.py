"""Hugging Face transformers opens what we export and writes the same; we open what it saves, and score the same."""

from __future__ import annotations

import dataclasses
import io
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sentencepiece
import torch

from regard.data.builtin import read_phrases
from regard.export import export_run, import_model
from regard.run import Run
from regard.tasks.translate.translator import Translator, load
from regard.text.subword import MappedTokenizer
from regard.text.tokenizer import EOS, SOS
from tests.export.runs import random_recipe, random_run, sentences
from tests.toys import Sentences, close

if TYPE_CHECKING:
    from transformers import MarianMTModel, MarianTokenizer

VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "plain": {"model": {}},
    "gelu, unigram": {"model": {"activation": "gelu"}, "tokenizer": {"kind": "unigram"}},
    "target tied": {"model": {"tie_embeddings": "target"}},
    "separate vocabularies, untied": {"model": {"tie_embeddings": "none"}, "tokenizer": {"joint": False}},
    "enough, length penalty": {"model": {}, "search": {"stop": "beam-full", "length_penalty": 0.6, "beam_size": 3}},
    "exact, no length penalty": {"model": {}, "search": {"stop": "exact", "length_penalty": 0.0}},
    "runs forbidden": {"model": {}, "search": {"no_repeat_ngram_size": 1, "beam_size": 3}},
    "longer": {
        "model": {},
        "search": {"min_length": 20, "no_repeat_ngram_size": 1, "beam_size": 1},
    },  # one has 19 without
    "repetitions rarer": {"model": {}, "search": {"repetition_penalty": 1.5, "beam_size": 3}},
    "tokens forbidden": {"model": {}, "search": {"suppress_tokens": ["<0x6E>", "ché"], "beam_size": 2}},
}


def open_theirs(folder: Path) -> tuple[MarianMTModel, MarianTokenizer]:
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Recommended: pip install sacremoses")
        opened = transformers.MarianTokenizer.from_pretrained(folder)
    return transformers.MarianMTModel.from_pretrained(folder), opened


@pytest.mark.parametrize("variant", VARIANTS)
def test_generate_writes_what_we_write(variant: str, tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", random_recipe(**VARIANTS[variant]))
    check_generated(*open_theirs(export_run(run, "marian", tmp_path / "marian")), load(run.folder))


def test_pegasus_writes_what_we_write(tmp_path: Path) -> None:
    """Transformers with pre-norm: opened by the names in the folder, as from a model hub."""
    transformers = pytest.importorskip("transformers")
    run = random_run(tmp_path / "run", random_recipe({"norm": "pre"}))
    folder = export_run(run, "pegasus", tmp_path / "pegasus")
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Recommended: pip install sacremoses")
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert type(model).__name__ == "PegasusForConditionalGeneration"
    check_generated(model, theirs, load(run.folder))


def check_generated(model: Any, theirs: Any, ours: Translator) -> None:
    """Their model and tokenizer must write what our translator writes."""
    for text, answer in zip(texts := sentences(4), ours.translate(texts, retry_failures=False), strict=True):
        ids = theirs(f" {text}  ")["input_ids"]
        assert ids == [*ours.source.encode(text), EOS]
        model.generation_config.max_length = 2 * (len(ids) - 1) + 11  # our limit, and the start token
        [written] = model.generate(input_ids=torch.tensor([ids])).tolist()
        tokens = [ours.target.token(id) for id in written if id not in (EOS, SOS)]
        assert tokens == list(answer.tokens)


def test_their_tokenizer_reads_and_writes_as_ours(tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", random_recipe())
    _, theirs = open_theirs(export_run(run, "marian", tmp_path / "marian"))
    ours, _ = run.tokenizers
    for text in ["I am trendy.", "un  po'  di pane", "naïve Ångström", "漢字 and 🙂", "a", "  spaces  around  "]:
        ids = theirs(text)["input_ids"]
        assert ids == [*ours.encode(text), EOS]
        assert theirs.decode([SOS, *ids], skip_special_tokens=True) == ours.decode(ids) == ours.normalize(text)


def published(folder: Path, activation: str = "relu", *, bias: bool = False, safe: bool = True) -> MarianMTModel:
    """A random model laid out as those of OPUS-MT are: two SentencePiece models, one table, no start token."""
    transformers = pytest.importorskip("transformers")
    folder.mkdir()
    train = read_phrases()[:100]
    models = {side: sentencepiece_model([getattr(phrase, side) for phrase in train]) for side in ("source", "target")}
    pieces: set[str] = set()
    for content in models.values():
        processor = sentencepiece.SentencePieceProcessor(model_proto=content)
        pieces |= {processor.id_to_piece(id) for id in range(3, processor.get_piece_size())}
    mixed = sorted(pieces, key=lambda piece: (len(piece), piece))  # an order of the table's own
    vocabulary = {token: id for id, token in enumerate(["</s>", "<unk>", ">>ita<<", *mixed, "<pad>"])}
    for side, content in models.items():
        (folder / f"{side}.spm").write_bytes(content)
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "it"}))
    padding = len(vocabulary) - 1
    config = transformers.MarianConfig(
        vocab_size=len(vocabulary), d_model=32, encoder_layers=2, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, activation_function=activation,
        scale_embedding=True, max_position_embeddings=64, pad_token_id=padding, eos_token_id=0,
        decoder_start_token_id=padding, static_position_embeddings=True, normalize_before=False,
    )  # fmt: skip
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" not in name:
                weight.add_(0.2 * torch.randn_like(weight))
        if bias:
            model.final_logits_bias.normal_()
    model.save_pretrained(folder)
    if not safe:
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")  # with all that is shared or computed, as theirs
    return model


def sentencepiece_model(lines: list[str]) -> bytes:
    """With SentencePiece's own normalisation, as theirs."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=150, hard_vocab_limit=False, minloglevel=2
    )
    return model.getvalue()


@pytest.mark.parametrize(
    ("activation", "bias", "safe"),
    [("swish", True, False), ("silu", False, True), ("relu", False, False)],
)
def test_a_published_model_scores_as_it_did(activation: str, bias: bool, safe: bool, tmp_path: Path) -> None:
    theirs = published(tmp_path / "opus", activation, bias=bias, safe=safe)
    run = import_model("marian", tmp_path / "opus", tmp_path / "run")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Recommended: pip install sacremoses")
        their_tokenizer = pytest.importorskip("transformers").MarianTokenizer.from_pretrained(tmp_path / "opus")
    source, target = run.tokenizers
    model = run.load_model()
    for text in [*sentences(3), ">>ita<< I am trendy", "ﬁne  Ｗords", "ça va?"]:
        ids = their_tokenizer(text)["input_ids"]
        ours = [*source.encode(text), EOS]
        assert [source.token(id) for id in ours] == [their_tokenizer.convert_ids_to_tokens(id) for id in ids]
        given = target.encode("Io sono alla moda")
        their_given = their_tokenizer(text_target="Io sono alla moda")["input_ids"][:-1]
        start = theirs.config.decoder_start_token_id
        with torch.no_grad():
            expected = theirs(
                input_ids=torch.tensor([ids]), decoder_input_ids=torch.tensor([[start, *their_given]])
            ).logits
            found = model(
                Sentences(torch.tensor([ours]), torch.ones(1, len(ours), dtype=torch.bool)),
                torch.tensor([[SOS, *given]]),
            )
        assert found.shape[-1] == expected.shape[-1] + 1  # the start token
        close(torch.cat([found[..., :SOS], found[..., SOS + 1 :]], dim=-1), expected, 1e-4)


def test_an_imported_run_goes_back_and_forth(tmp_path: Path) -> None:
    published(tmp_path / "opus", "swish", bias=True)
    first = import_model("marian", tmp_path / "opus", tmp_path / "first")
    second = import_model("marian", export_run(first, "marian", tmp_path / "again"), tmp_path / "second")
    assert isinstance(second.tokenizers[0], MappedTokenizer)
    assert [one.hash() for one in second.tokenizers] == [one.hash() for one in first.tokenizers]
    assert second.recipe == dataclasses.replace(first.recipe, tokenizer=second.recipe.tokenizer)
    same_weights(first, second)
    assert load(second.folder).translate("I am trendy")[0].text == load(first.folder).translate("I am trendy")[0].text


@pytest.mark.parametrize("variant", VARIANTS)
def test_there_and_back_is_bit_identical(variant: str, tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", random_recipe(**VARIANTS[variant]))
    back = import_model("marian", export_run(run, "marian", tmp_path / "marian"), tmp_path / "back")
    same_weights(run, back)
    assert back.recipe.search == run.recipe.search
    assert [one.hash() for one in back.tokenizers] == [one.hash() for one in run.tokenizers]


def same_weights(one: Run, other: Run) -> None:
    mine, theirs = (dict(run.load_model().named_parameters()) for run in (one, other))
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
