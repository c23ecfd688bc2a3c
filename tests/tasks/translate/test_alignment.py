"""Aligning texts: every architecture with attention, batches, long lines, the command."""

import json

import pytest
import torch

import regard
from regard import config, models
from regard.analysis.alignment import AlignmentHeads, Head, align
from regard.cli import main
from regard.data.builtin import read_phrases
from regard.errors import NoCrossAttentionError, SettingsError
from regard.models.transformer_settings import TransformerSettings
from regard.run import Run
from regard.tasks.translate.alignment import Aligner, text_side
from regard.tasks.translate.translator import Translator
from regard.text.tokenizer import train_tokenizer
from regard.text.words import words
from tests.toys import TOYS

HELD_OUT = read_phrases()[150:155]
LINES = [side for phrase in read_phrases()[:150] for side in (phrase.source, phrase.target)]
TOKENIZERS = {
    kind: train_tokenizer(LINES, config.TokenizerSettings(kind=kind, vocab_size=size), seed=1)
    for kind, size in (("bpe", 420), ("word", 120), ("character", 80))
}
TEXTS, TARGETS = [p.source for p in HELD_OUT], [p.target for p in HELD_OUT]


def translator(arch="transformer-tiny", kind="bpe", **options):
    torch.manual_seed(3)
    tokenizer = TOKENIZERS[kind]
    model = (
        models.build(TOYS[arch], source_vocabulary=tokenizer.size, target_vocabulary=tokenizer.size)
        .eval()
        .requires_grad_(False)
    )
    return Translator(model, tokenizer, tokenizer, **options)


def aligner(made, choice=None):
    return Aligner(made.model, made.source, made.target, choice)


@pytest.mark.parametrize("arch", [arch for arch, settings in TOYS.items() if settings.attends])
def test_every_architecture_with_attention_aligns(arch):
    found = aligner(translator(arch)).align(TEXTS, TARGETS)
    for alignment, text, target in zip(found, TEXTS, TARGETS, strict=True):
        assert alignment.source == tuple(word.text for word in words(text))
        assert alignment.target == tuple(word.text for word in words(target))
        assert {t for _, t in alignment.links} == set(range(len(alignment.target)))
        assert {s for s, _ in alignment.links} <= set(range(len(alignment.source)))


def test_without_attention_it_is_told():
    with pytest.raises(NoCrossAttentionError, match="without cross-attention cannot align"):
        translator("seq2seq-lstm").translate(TEXTS, align=True)


@pytest.mark.parametrize("kind", list(TOKENIZERS))
def test_links_are_between_the_words_whatever_the_tokens(kind):
    made = translator(kind=kind)
    [found] = aligner(made).align(["The animal's here, Xyzzy!"], ["L'animale è qui, Xyzzy!"])
    assert found.source == ("The", "animal's", "here", ",", "Xyzzy", "!")
    assert found.target == ("L'", "animale", "è", "qui", ",", "Xyzzy", "!")
    assert max(t for _, t in found.links) == 6


def test_batches_padding_and_empty_sides_change_nothing():
    made = aligner(translator())
    texts, targets = [*TEXTS, "", "a b", " "], [*TARGETS, "x", "", ""]
    together = made.align(texts, targets)
    alone = [made.align([text], [target])[0] for text, target in zip(texts, targets, strict=True)]
    assert together == alone == made.align(texts, targets, batch_tokens=30)
    assert [one.links for one in together[-3:]] == [(), (), ()]
    assert (together[-3].target, together[-2].source) == (("x",), ("a", "b"))


def test_an_alignment_is_that_of_the_trace():
    made = translator()
    choice = AlignmentHeads((Head("decoder.0.cross", 1), Head("decoder.1.cross", 0)), rule="target")
    [found] = aligner(made, choice).align([TEXTS[0]], [TARGETS[0]])
    trace = made.trace(TEXTS[0], TARGETS[0]).by_words()
    mean = (trace.attention("decoder.0.cross")[1] + trace.attention("decoder.1.cross")[0]) / 2
    plain = align(mean[:-1, :-1], "target")
    marked = {t for t, word in enumerate(found.target) if word in ".?"}
    assert {link for link in plain if link[1] not in marked and found.source[link[0]] not in ".?"} <= set(found.links)
    assert len(found.links) == len(found.target)


# ---------------------------------------------------------------------------------------------------------------------
# Translating


def test_answers_bring_their_alignment_when_asked():
    made = translator()
    [answer] = made.translate([TEXTS[0]], align=True, nbest=2, beam_size=3, retry_failures=False)
    for one in (answer, *answer.alternatives):
        assert one.alignment == aligner(made).align([TEXTS[0]], [one.text])[0]
    data = json.loads(json.dumps(answer.as_dict()))
    assert data["alignment"]["links"] == [list(link) for link in answer.alignment.links]
    assert data["alignment"]["source"] == [word.text for word in words(TEXTS[0])]
    [plain] = made.translate([TEXTS[0]], retry_failures=False)
    assert plain.alignment is None
    assert "alignment" not in plain.as_dict()


def test_long_lines_are_aligned_piece_by_piece():
    made = translator()
    long = " ".join(TEXTS)
    options = {
        "retry_failures": False,
        "beam_size": 2,
        "max_source_tokens": 40,
        "max_length_ratio": 0.5,
        "max_length_extra": 2,
        "align": True,
    }
    answers = made.translate([TEXTS[0], long, "", TEXTS[1]], **options)
    assert ["split" in answer.flags for answer in answers] == [False, True, False, False]
    whole = answers[1].alignment
    assert whole.source == tuple(word.text for word in words(long))
    assert whole.target == tuple(word.text for word in words(answers[1].text))
    assert {t for _, t in whole.links} == set(range(len(whole.target)))
    places = [s for s, _ in whole.links]
    assert max(places) > len(words(TEXTS[0]))  # later pieces count on from the earlier ones
    apart = made.translate([TEXTS[0], TEXTS[1]], **options)
    assert [answers[0].alignment, answers[3].alignment] == [answer.alignment for answer in apart]


def test_a_trace_knows_the_search_and_the_text_as_typed():
    made = translator()
    trace = made.trace("  The   animal\tis here. ")
    assert trace.source.text == "  The   animal\tis here. "
    spans = dict(zip(trace.source.words, trace.source.by_words().spans, strict=True))
    assert trace.source.text[slice(*spans["animal"])] == "animal"
    assert trace.source.text[slice(*spans["."])] == "."
    [answer] = made.translate(["  The   animal\tis here. "])
    assert trace.target.tokens[:-1] == answer.tokens  # those that the search wrote
    assert any(node.fate == "finished" for node in trace.tree.nodes)
    assert made.trace("a", "b").tree is None
    assert made.trace("", "").target.tokens == ("</s>",)
    made.search = config.SearchSettings(beam_size=1)
    assert made.trace("The animal").tree is None


def test_a_list_of_texts_has_a_list_of_traces():
    made = translator()
    first, second = made.trace(TEXTS[:2], TARGETS[:2])
    assert second.target.text == TARGETS[1]
    assert torch.equal(first.next, made.trace(TEXTS[0], TARGETS[0]).next)
    assert [trace.source.text for trace in made.trace(["a", "b"])] == ["a", "b"]
    for texts, targets in ((["a", "b"], ["c"]), (["a", "b"], "cd"), ("a", ["b"])):
        with pytest.raises(SettingsError, match="targets"):
            made.trace(texts, targets)


def test_an_unknown_word_keeps_its_place():
    side = text_side(TOKENIZERS["word"], "Xyzzy is here")
    assert side.tokens[0] == "<unk>"
    assert side.words[0] == "Xyzzy"
    assert side.spans[0] == (0, 5)


# ---------------------------------------------------------------------------------------------------------------------
# The command


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "a"
    made = Run.create(folder)
    small = TransformerSettings(
        "transformer-tiny", encoder_layers=1, decoder_layers=1, width=16, heads=2, ffn_width=16, dropout=0.0, norm="pre"
    )
    made.write_recipe(config.Recipe(tokenizer=config.TokenizerSettings(vocab_size=420), model=small))
    made.write_tokenizers(TOKENIZERS["bpe"], TOKENIZERS["bpe"])
    made.write_sizes(source_vocabulary=TOKENIZERS["bpe"].size, target_vocabulary=TOKENIZERS["bpe"].size)
    torch.manual_seed(1)
    made.write_weights(dict(made.build_network().named_parameters()))
    (folder.parent / "in.en").write_text(f"{TEXTS[0]}\n\n", encoding="utf-8")
    return folder


def test_the_command_prints_links(run, capsys):
    arguments = ["translate", str(run), str(run.parent / "in.en"), "--align", "--set", "search.retry_failures=false"]
    assert main(arguments) == 0
    first, second = capsys.readouterr().out.split("\n")[:2]
    [answer] = regard.load(run).translate([TEXTS[0]], align=True, retry_failures=False)
    assert first == f"{answer.text}\t{answer.alignment.pharaoh}"
    assert second == "\t"
    assert main([*arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out.split("\n")[0])
    assert data["alignment"]["links"] == [list(link) for link in answer.alignment.links]


def test_the_command_refuses_an_engine_that_cannot(run, capsys):
    assert main(["translate", str(run), str(run.parent / "in.en"), "--align", "--engine", "ctranslate2"]) == 2
    error = capsys.readouterr().err
    assert "CTranslate2 does not support --align" in error
    assert len(error.splitlines()) == 1


def test_the_heads_of_the_card_are_used(run):
    opened = Run.open(run)
    choice = AlignmentHeads((Head("decoder.0.cross", 1),), True, "target")
    opened.write_card({"alignment": choice.as_dict()})
    try:
        assert regard.load(run).alignment == choice
        opened.write_card({"alignment": "best"})
        with pytest.raises(regard.RegardError, match=r"card\.json: \"alignment\" does not list heads"):
            regard.load(run)
    finally:
        opened.write_card({})
