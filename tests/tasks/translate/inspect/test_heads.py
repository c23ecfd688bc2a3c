"""`regard heads`: from text with known grammar to roles and importance, and to a smaller run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import regard
from regard.analysis.head_roles import RoleName
from regard.cli import main
from regard.config import Corpus
from regard.config.recipe import make_recipe
from regard.data.builtin import read_phrases
from regard.data.pairs import Pair
from regard.layers.hooks import listen, without_heads
from regard.run import Run
from regard.tasks.translate.alignment import Aligner
from regard.tasks.translate.inspect import prune as prune_module
from regard.tasks.translate.inspect.heads import (
    AnnotatedExample,
    CandidateRoles,
    _annotate,
    _candidate_roles,
    describe_heads,
    own_examples,
    parsed_examples,
    read_examples,
    text_batches,
    token_frequencies,
    with_links,
)
from regard.text.words import words
from tests.export.runs import random_recipe, random_run
from tests.small_runs import train_arguments, write_corpus
from tests.toys import close

ALIGNED = RoleName("alignment", "translated word")


@pytest.fixture(scope="module")
def random(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A Transformer that has learnt nothing."""
    return random_run(tmp_path_factory.mktemp("random") / "run", random_recipe())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learnt a little."""
    folder = tmp_path_factory.mktemp("small")
    write_corpus(folder)
    assert main(train_arguments(folder, folder / "run", "train.max_steps=12")) == 0
    return folder / "run"


def examples(count: int) -> list[AnnotatedExample]:
    return list(map(_annotate, read_phrases()[:count]))


# ---------------------------------------------------------------------------------------------------------------------
# What is right


def phrase_views(run: Run) -> tuple[dict[str, CandidateRoles], list[str], list[str]]:
    """Of "I take a shower" and "Faccio la doccia", with the word that each of their tokens belongs to."""
    source, target = run.tokenizers
    [example] = [example for example in examples(4) if example.source == "I take a shower"]
    counts = (torch.arange(source.size), torch.arange(target.size))  # a token is as frequent as its id is high
    sides = ((source, example.source), (target, example.target))
    told = [
        [next(word.text for word in words(text) if piece.start < word.end) for piece in side.pieces(text)]
        for side, text in sides
    ]
    return _candidate_roles(example, source, target, counts), told[0], told[1]


def joined(right_TS: torch.Tensor, rows: list[str], columns: list[str]) -> set[tuple[str, str]]:
    """The words that stand in a relation."""
    return {(rows[t], columns[s]) for t, s in right_TS.nonzero().tolist()}


def test_relations_become_tokens(random: Run) -> None:
    views, heard, said = phrase_views(random)
    encoder, decoder, cross = views["encoder"].right, views["decoder"].right, views["cross"].right
    assert joined(encoder[RoleName("syntactic", "subject → verb")], heard, heard) == {("I", "take")}
    assert joined(encoder[RoleName("syntactic", "verb → object")], heard, heard) == {("take", "a"), ("take", "shower")}
    read = ["<s>", *said]  # the decoder reads the start token first
    assert joined(decoder[RoleName("syntactic", "object → verb")], read, read) == {
        ("la", "Faccio"),
        ("doccia", "Faccio"),
    }
    assert RoleName("syntactic", "subject → verb") not in decoder  # the pronoun is dropped
    links = {("Faccio", "I"), ("Faccio", "take"), ("la", "a"), ("doccia", "shower")}
    assert joined(cross[ALIGNED], said, heard) == links


def test_end_and_start_are_nobodys_answer(random: Run) -> None:
    views, heard, said = phrase_views(random)
    encoder, decoder, cross = (views[kind].seen_TS for kind in ("encoder", "decoder", "cross"))
    assert encoder.shape == (len(heard) + 1, len(heard) + 1)
    assert encoder[:-1, :-1].all()
    assert not encoder[-1].any()
    assert not encoder[:, -1].any()
    assert torch.equal(decoder[1:, 1:], torch.ones(len(said), len(said), dtype=torch.bool).tril())
    assert not decoder[0].any()
    assert not decoder[:, 0].any()
    assert cross.shape == (len(said) + 1, len(heard) + 1)
    assert cross.sum() == len(said) * len(heard)


def test_the_rarest_token_is_that_of_the_side_that_is_looked_at(random: Run) -> None:
    views, _, _ = phrase_views(random)
    ids = random.tokenizers[0].encode("I take a shower")
    lowest = ids.index(min(ids))
    for kind in ("encoder", "cross"):
        rare_TS = views[kind].right[RoleName("rare", "rarest token")]
        assert set(rare_TS.nonzero()[:, 1].tolist()) == {lowest}


def test_frequencies_are_counted_by_token(random: Run) -> None:
    source, _ = random.tokenizers
    counts = token_frequencies(["I am trendy", "I take"], source)
    assert counts.shape == (source.size,)
    assert counts[source.encode("I")[0]] == 2
    assert counts.sum() == len(source.encode("I am trendy")) + len(source.encode("I take"))


def test_batches_tell_which_pairs_they_hold(random: Run) -> None:
    pairs = [Pair(phrase.source, phrase.target) for phrase in read_phrases()[:100]]
    batches = text_batches(pairs, *random.tokenizers)
    assert sorted(place for batch in batches for place in batch.index_B.tolist()) == list(range(100))
    for batch in batches:
        ids = batch.source.ids_BS[0][batch.source.mask_BS[0]][:-1].tolist()
        assert random.tokenizers[0].decode(ids) == pairs[int(batch.index_B[0])].source


# ---------------------------------------------------------------------------------------------------------------------
# Whole models


def test_a_random_model_has_heads_and_no_roles(random: Run) -> None:
    heads = describe_heads(regard.load(random.folder), examples(60))
    assert [(head.attention, head.head) for head in heads[:5]] == [
        *(("encoder.0.self", head) for head in range(4)),
        ("encoder.1.self", 0),
    ]
    assert len(heads) == 6 * 4
    assert not any(head.roles for head in heads)
    assert all(0 < head.confidence <= 1 and head.gradient > 0 for head in heads)
    assert {head.kind for head in heads} == {"encoder", "decoder", "cross"}


def test_a_head_that_is_made_to_align_is_found(random: Run) -> None:
    """The weights of one head are replaced by the gold links."""
    translator, known = regard.load(random.folder), examples(60)
    source, target = random.tokenizers
    frequencies = (torch.ones(source.size), torch.ones(target.size))
    linked: dict[tuple[int, ...], torch.Tensor] = {}
    for batch in text_batches([Pair(example.source, example.target) for example in known], source, target):
        shape = (*batch.target_input_BT.shape, batch.source.ids_BS.shape[1])
        linked[shape] = torch.zeros(shape)
        for row, place in enumerate(batch.index_B.tolist()):
            right_TS = _candidate_roles(known[place], source, target, frequencies)["cross"].right[ALIGNED]
            linked[shape][row, : right_TS.shape[0], : right_TS.shape[1]] = right_TS.float()

    def point(name: str, weights_BHTS: torch.Tensor) -> torch.Tensor:
        weights_BHTS = weights_BHTS.clone()
        weights_BHTS[:, 2] = linked[weights_BHTS[:, 2].shape]
        return weights_BHTS

    with listen(translator.model, "decoder.1.cross", point):
        heads = describe_heads(translator, known)
    with_roles = [(head.attention, head.head, head.roles[0].kind) for head in heads if head.roles]
    assert with_roles == [("decoder.1.cross", 2, "alignment")]


def test_recurrent_attention_is_a_head_too(tmp_path: Path) -> None:
    recipe = {"arch": "bahdanau", "width": 16, "embedding_width": 16, "dropout": 0.0}
    run = random_run(tmp_path / "run", make_recipe({"model": recipe, "data": {}}))
    [head] = describe_heads(regard.load(run.folder), examples(30))
    assert (head.attention, head.head, head.kind) == ("decoder.cross", 0, "cross")


# ---------------------------------------------------------------------------------------------------------------------
# Text


def test_the_phrasebook_brings_its_grammar(random: Run) -> None:
    found = read_examples(random, [Corpus("phrasebook:valid")], 30)
    assert len(found) == 30
    assert any(example.source_relations for example in found)
    assert all(example.links for example in found)


def test_a_run_that_has_lost_its_text_says_so(random: Run) -> None:
    with pytest.raises(
        regard.RegardError, match=r"run: the validation data of the run cannot be read .* give other text with --source"
    ):
        own_examples(random, 10)


def test_parsed_sentences_are_translated_where_no_translation_is_given(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    rows = ["1\tShe\t_\t_\t_\t_\t2\tnsubj\t_\t_", "2\treads\t_\t_\t_\t_\t0\troot\t_\t_", ""]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    [example] = parsed_examples(str(path), "", 10, lambda texts: [text.upper() for text in texts])
    assert (example.source, example.target) == ("She reads", "SHE READS")
    assert [relation.name for relation in example.source_relations] == ["nsubj → head", "head → nsubj"]
    (tmp_path / "b.it").write_text("", encoding="utf-8")
    with pytest.raises(regard.RegardError):
        parsed_examples(str(path), str(tmp_path / "b.it"), 10, list)


def test_links_are_read_line_by_line(tmp_path: Path) -> None:
    pairs = [AnnotatedExample("I am trendy", "Io sono alla moda"), AnnotatedExample("Yes", "Sì")]
    path = tmp_path / "links"
    path.write_text("0-0 1-1 2p3\n0-0\n", encoding="utf-8")
    first, second = with_links(pairs, str(path))
    assert first.links == (((0, 1), (0, 2)), ((2, 4), (3, 7)), ((5, 11), (13, 17)))
    assert second.links == (((0, 3), (0, 2)),)
    for line, message in (
        ("0-7", r"links:1: alignment 0-7 is out of range: the pair has 3 source and 4 target words"),
        ("0:1", 'links:1: "0:1" is not a link'),
    ):
        path.write_text(f"{line}\n0-0\n", encoding="utf-8")
        with pytest.raises(regard.RegardError, match=message):
            with_links(pairs, str(path))
    path.write_text("1-1 3-4\n1-1\n", encoding="utf-8")
    first, _ = with_links(pairs, str(path), first=1)
    assert first.links == (((0, 1), (0, 2)), ((5, 11), (13, 17)))
    path.write_text("0-0\n", encoding="utf-8")
    hint = r"links:1: alignment 0-0 .* \(indices start at 1; use --gold-from 0 if yours start at 0\)"
    with pytest.raises(regard.RegardError, match=hint):
        with_links(pairs[:1], str(path), first=1)
    path.write_text("0-0\n0-0\n", encoding="utf-8")
    with pytest.raises(regard.RegardError, match="2 lines for 3 pairs"):
        with_links([*pairs, *pairs[:1]], str(path))


def test_words_of_gold_are_those_that_spaces_divide(tmp_path: Path) -> None:
    """Gold is made for a tokenised text: "Mr." and "l'amico" are one word there if they are written as one."""
    path = tmp_path / "a.gold"
    path.write_text("1-1 2-2\n", encoding="utf-8")
    [found] = with_links([AnnotatedExample("Mr. Smith's dog", "L'uomo aveva cane")], str(path))
    assert [(found.source[slice(*one)], found.target[slice(*other)]) for one, other in found.links] == [
        ("Smith's", "aveva"),
        ("dog", "cane"),
    ]
    path.write_text("3-2\n", encoding="utf-8")
    with pytest.raises(regard.RegardError) as error:
        with_links([AnnotatedExample("it's him", "è lui")], str(path))
    assert str(error.value) == (
        f"{path}:1: alignment 3-2 is out of range: the pair has 2 source and 2 target words "
        "(indices start at 0; use --gold-from 1 if yours start at 1)"
    )


def test_heads_are_judged_by_the_pairs_that_a_run_keeps(random: Run, tmp_path: Path) -> None:
    """Its training files may have moved."""
    run = Run.open(shutil.copytree(random.folder, tmp_path / "kept"))
    run.write_held_out([Pair("I am trendy", "Io sono alla moda"), Pair("Yes", "Sì")])
    assert own_examples(run, 10) == [
        AnnotatedExample("I am trendy", "Io sono alla moda"),
        AnnotatedExample("Yes", "Sì"),
    ]
    assert len(own_examples(run, 1)) == 1
    book = replace(run.recipe, data=replace(run.recipe.data, valid=(Corpus("phrasebook:valid"),)))
    run.write_recipe(book)
    assert all(example.links for example in own_examples(Run.open(run.folder), 5))


# ---------------------------------------------------------------------------------------------------------------------
# The command


def test_the_heads_that_align_are_chosen_and_kept(
    random: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the mean of all heads aligns well it stays in use; where one head alone does, that one is kept."""
    run = Run.open(shutil.copytree(random.folder, tmp_path / "run"))
    pairs = {"en": "I am here", "it": "qui sono io", "gold": "0-2 1-1 2-0"}
    for name, line in pairs.items():
        (tmp_path / name).write_text(f"{line}\n" * 24, encoding="utf-8")
    files = [
        f"--{option}={tmp_path / name}" for option, name in zip(("source", "target", "alignments"), pairs, strict=True)
    ]
    choose = ["heads", str(run.folder), *files, "--choose-alignment"]
    assert main(choose) == 0  # whatever untrained heads do
    run.write_card({})
    right_TS, wrong_TS = torch.eye(3).flip(0), torch.eye(3)

    def plant(*heads: torch.Tensor) -> None:
        maps = {"decoder.0.cross": torch.stack(heads[:2]), "decoder.1.cross": torch.stack(heads[2:])}

        def word_maps(self: Aligner, texts: list[str], targets: list[str]) -> dict[bool, list[dict[str, torch.Tensor]]]:
            return {shift: [maps] * len(texts) for shift in (False, True)}

        monkeypatch.setattr(Aligner, "word_maps", word_maps)

    plant(right_TS, right_TS, right_TS, wrong_TS)
    assert main(choose) == 0
    assert "alignment" not in run.card
    plant(wrong_TS, wrong_TS, wrong_TS, right_TS)
    assert main(choose) == 0
    assert run.card["alignment"]["heads"] == [["decoder.1.cross", 1]]
    assert "alignment error rate: 0.000 with decoder.1.cross 1" in capsys.readouterr().out
    assert [head.number for head in regard.load(run.folder).alignment.heads] == [1]
    assert main([*choose, "--sentences", "19"]) == 2
    assert "19 sentence pairs with word alignments are too few" in capsys.readouterr().err
    assert main([*choose, "--json"]) == 2


def test_the_table_for_programs(trained: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "heads.svg"
    assert main(["heads", str(trained), "--sentences", "20", "--out", str(picture)]) == 0
    header, *lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert header[:3] == ["attention", "head", "confidence"]
    assert {line[0] for line in lines} == {"encoder.0.self", "decoder.0.self", "decoder.0.cross"}
    assert all(len(line) == len(header) for line in lines)
    assert picture.read_text(encoding="utf-8").startswith("<svg ")
    assert main(["heads", str(trained), "--sentences", "20", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["sentences"] == 20
    assert {"attention", "head", "kind", "roles", "confidence", "ablation", "gradient"} == set(facts["heads"][0])


BAD = {
    "both kinds of text": (["--conllu", "a", "--source", "b"], "--conllu contains the source sentences"),
    "a picture of another kind": (["--out", "heads.gif"], "the picture is an .svg file"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gives_one_line(case: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, message = BAD[case]
    assert main(["heads", str(trained), *(word.format(d=tmp_path, run=trained) for word in arguments)]) == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]
    assert not list(tmp_path.iterdir())


BAD_PRUNING = {
    "nowhere to go": (["--share", "0.5"], "the following arguments are required: --out"),
    "nothing to prune": (["--share", "0.01", "--out", "{d}/new"], "at least 1 and at most 5 of 6 heads can be removed"),
    "all of it": (["--share", "1", "--out", "{d}/new"], "at least 1 and at most 5 of 6 heads can be removed"),
    "no time for gates": (["--out", "{d}/new", "--minutes", "0"], "gates must be trained"),
    "another model": (["--out", "{d}/new", "--set", "model.heads=1"], "only train. and search."),
    "an existing run": (["--out", "{run}"], "exists already"),
}


@pytest.mark.parametrize("case", BAD_PRUNING)
def test_bad_pruning_gives_one_line(
    case: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, message = BAD_PRUNING[case]
    assert main(["prune", str(trained), *(word.format(d=tmp_path, run=trained) for word in arguments)]) == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("by", ["gates", "importance"])
def test_a_smaller_run(by: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "fewer"
    options = ["--share", "0.5", "--method", by, "--set", "train.max_steps=10", "--json"]
    assert main(["prune", str(trained), "--out", str(out), *options]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["heads"] == {"before": 6, "after": 3}
    assert sum(map(len, told["kept"].values())) == 3
    run, parent = Run.open(out), Run.open(trained)
    assert {name: len(heads) for name, heads in told["kept"].items()} == {
        name: run.recipe.model.heads_in(name) for name in told["kept"]
    }
    assert run.card["pruning"] == told
    assert run.card["base"] == "run"
    assert set(run.card["scores"]) == {"valid", "test"}
    assert run.card["parameters"] == told["parameters"]["after"] < told["parameters"]["before"]
    assert told["bytes"]["after"] == (out / "weights.safetensors").stat().st_size < told["bytes"]["before"]
    assert (out / "report.html").is_file()
    assert not (out / "store").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["fewer"]
    assert [side.hash() for side in run.tokenizers] == [side.hash() for side in parent.tokenizers]
    assert regard.load(out).translate(["I am trendy"])[0].tokens


def test_pruning_by_importance_alone_is_exact(trained: Path, tmp_path: Path) -> None:
    """Without training, the new run says what the old one says with these heads switched off."""
    from regard.layers.hooks import listen

    out = tmp_path / "fewer"
    told = prune_module.prune_run(Run.open(trained), out, 0.5, by="importance", minutes=0)
    whole, part = Run.open(trained).load_model(), Run.open(out).load_model()
    [batch] = text_batches([Pair("I am trendy", "Io sono alla moda")], *Run.open(out).tokenizers)

    def switch_off(name: str, weights_BHTS: torch.Tensor) -> torch.Tensor:
        return without_heads(*({0, 1} - set(told.kept[name])))(name, weights_BHTS)

    with listen(whole, "*", switch_off), torch.no_grad():
        close(part(batch.source, batch.target_input_BT), whole(batch.source, batch.target_input_BT))


def test_pruning_that_is_interrupted_leaves_nothing(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(prune_module, "_train_on", interrupt)
    with pytest.raises(KeyboardInterrupt):
        prune_module.prune_run(Run.open(trained), tmp_path / "fewer", 0.5, by="importance")
    assert not list(tmp_path.iterdir())


def test_a_recurrent_model_has_nothing_to_prune(tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", make_recipe({"model": {"arch": "bahdanau", "width": 16, "embedding_width": 16}}))
    with pytest.raises(regard.RegardError, match="bahdanau has only one head, which cannot be removed"):
        prune_module.prune_run(run, tmp_path / "out", 0.5)


def test_how_long_to_train(trained: Path, random: Run, tmp_path: Path) -> None:
    """A share of the run's own updates at its own rate; or minutes, at a lower one where they are few."""
    run = Run.open(trained)
    own = run.recipe.train
    again = prune_module._train_again(run, None, None, ()).train
    assert (again.max_steps, again.max_minutes, again.learning_rate) == (round(0.6 * 12), 0, own.learning_rate)
    seconds = run.card["training"]["seconds"]
    for minutes, rate in ((1e-9, 0.1), (seconds / 60 / 8, 0.5), (60.0, 1.0)):
        again = prune_module._train_again(run, minutes, None, ()).train
        assert again.max_minutes == minutes
        assert again.learning_rate == pytest.approx(rate * own.learning_rate)
    assert prune_module._train_again(run, None, None, ["train.max_steps=5"]).train.max_steps == 5
    with pytest.raises(regard.RegardError, match=r"does not say how long the run was trained.*give --minutes"):
        prune_module.prune_run(random, tmp_path / "out", 0.5)


def test_a_run_whose_text_is_gone_asks_for_other(trained: Path, tmp_path: Path) -> None:
    moved = tmp_path / "run"
    shutil.copytree(trained, moved)
    recipe = (moved / "recipe.toml").read_text(encoding="utf-8")
    (moved / "recipe.toml").write_text(recipe.replace("train.en", "gone.en"), encoding="utf-8")
    Run.open(moved).checksums.accept(["recipe.toml"])
    with pytest.raises(
        regard.RegardError, match=r"the training data of the run cannot be read .* give other text with"
    ):
        prune_module.prune_run(Run.open(moved), tmp_path / "out", 0.5)
    assert not (tmp_path / "out").exists()
