"""A small run from text to report, and what it leaves behind."""

import dataclasses
import json
import os
import pickle
import shutil

import pytest
import torch

import regard
from regard.cli import main
from regard.data.batches import make_batch
from regard.data.pairs import Pair
from regard.errors import TrainingError
from regard.run import Run
from regard.system import keep_memory
from regard.tasks.seq2seq import mean_loss
from regard.tasks.train import _first_model, _launch, resolve
from regard.tasks.training import training_of
from regard.training.distributed import ProcessGroup
from regard.training.schedule import ScheduleStage
from regard.training.trainer import Trainer
from tests.processes import call
from tests.small_runs import train_arguments, write_corpus


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    write_corpus(folder)
    assert main(train_arguments(folder, folder / "run", "train.max_steps=30")) == 0
    return folder / "run"


def test_the_run_folder_is_complete(run):
    names = {path.name for path in run.iterdir() if not path.name.startswith(".")}
    assert names == {
        "recipe.toml", "tokenizer.json", "tokenizer.model", "weights.safetensors", "metrics.jsonl", "card.json",
        "report.html", "held-out.jsonl", "checkpoints", "checksums.json",
    }  # fmt: skip
    card = Run.open(run).card
    assert card["pairs"] == {"train": 300, "valid": 20, "test": 20}
    assert set(card["scores"]) == {"valid", "test"}
    assert card["scores"]["test"]["signatures"]["bleu"].startswith("nrefs:1|")
    assert card["training"]["step"] == 30
    assert card["training"]["flops"] > 0
    assert all(len(entry["sha256"]) == 64 for entry in card["data"])


def test_losses_fall(run):
    losses = [line["loss"] for line in Run.open(run).metrics() if line["kind"] == "step"]
    assert losses[-1] < 0.9 * losses[0]  # a moving average


def test_words_are_cut_as_usual_while_it_cools_down(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    opened = Run.open(tmp_path / "run")
    recipe, training = opened.recipe, training_of(opened.recipe)
    recipe = dataclasses.replace(recipe, tokenizer=dataclasses.replace(recipe.tokenizer, subword_regularization=0.5))
    task = training.train_unit(recipe, training.open_data(opened, print), opened.build_network())
    sampled = task.batch(0)
    task.stage = ScheduleStage(cooldown=True)
    usual = task.batch(0)
    pairs = [task.data.train[place] for place in usual.index_B.tolist()]
    assert usual.target_tokens == sum(len(target) + 1 for _, target in pairs)
    assert sampled.target_tokens > usual.target_tokens  # words in more pieces


@pytest.mark.parametrize("search", [{"coverage_penalty": 0.2}, {"beam_size": 4, "beam_groups": 2}])
def test_validation_needs_no_beam_whatever_the_search_settings(run, tmp_path, search):
    shutil.copytree(run, tmp_path / "run")
    opened = Run.open(tmp_path / "run")
    recipe, training = opened.recipe, training_of(opened.recipe)
    recipe = dataclasses.replace(recipe, search=dataclasses.replace(recipe.search, **search))
    model = opened.load_network()
    unit = training.train_unit(recipe, training.open_data(opened, print), model)
    greedy = regard.load(run).translate([pair.source for pair in unit.shown], beam_size=1, retry_failures=False)
    assert unit.generate(model) == [answer.text for answer in greedy]


def test_load_and_translate_in_order_with_empty_lines(run):
    model = regard.load(run)
    texts = ["I am trendy", "", "She reads a book.", "   "]
    answers = model.translate(texts)
    assert [answer.source for answer in answers] == texts
    assert [bool(answer.tokens) for answer in answers] == [True, False, True, False]
    assert answers[1].text == answers[3].text == ""
    alone = [model.translate([text])[0].text for text in texts]
    assert alone == [answer.text for answer in answers]


def test_nbest_and_overrides(run):
    [answer] = regard.load(run).translate(["I am trendy"], nbest=3, beam_size=4)
    scores = [answer.score, *(other.score for other in answer.alternatives)]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert json.loads(json.dumps(answer.as_dict()))["alternatives"][0]["text"] == answer.alternatives[0].text


def test_trace_shows_every_attention(run):
    trace = regard.load(run).trace("I am trendy", "Io sono alla moda")
    assert set(trace.weights) == {"encoder.0.self", "decoder.0.self", "decoder.0.cross"}
    cross = trace.attention("decoder.0.cross")
    assert cross.shape == (2, len(trace.target.tokens), len(trace.source.tokens))
    torch.testing.assert_close(cross.sum(-1), torch.ones(cross.shape[:2]))
    words = trace.by_words()
    assert words.source.words == ("I", "am", "trendy", "</s>")
    assert words.target.words == ("Io", "sono", "alla", "moda", "</s>")
    assert words.attention("decoder.0.cross").shape == (2, 5, 4)
    for weights in words.weights.values():
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]))
    with pytest.raises(regard.RegardError, match=r'did you mean "decoder\.0\.cross"'):
        trace.attention("decoder.0.corss")


def test_translate_and_evaluate_commands(run, tmp_path, capsys):
    (tmp_path / "in.en").write_text("I am trendy\n\nShe reads a book.\n")
    assert main(["translate", str(run), str(tmp_path / "in.en"), "--beam", "2"]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 4
    assert lines[1] == ""
    assert main(["translate", str(run), str(tmp_path / "in.en"), "--json", "--nbest", "2"]) == 0
    parsed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(answer["alternatives"]) for answer in parsed] == [1, 0, 1]
    assert main(["evaluate", str(run), "--source", "phrasebook:valid", "--beam", "1", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert {"bleu", "chrf", "ter", "signatures"} <= set(scores)
    assert main(["info", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"]["test"]["sentences"] == 20


def test_info_says_where_an_unfinished_run_stands(run, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    assert main(["info", str(copy)]) == 0
    assert "unfinished" not in capsys.readouterr().out
    card = json.loads((copy / "card.json").read_text())
    del card["training"], card["scores"]
    (copy / "card.json").write_text(json.dumps(card))
    last = max(int(state.stem) for state in (copy / "checkpoints").glob("*.json"))
    assert main(["info", str(copy)]) == 0
    assert f'at step {last:,}; continue with "regard resume {copy}"' in capsys.readouterr().out


def test_an_end_that_lies_behind_is_refused(run, capsys):
    before = (run / "recipe.toml").read_text()
    assert main(["resume", str(run), "--set", "train.max_steps=1"]) == 2
    assert "give a larger number" in capsys.readouterr().err
    assert (run / "recipe.toml").read_text() == before


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("train.seed=2", "train.seed cannot change in an existing run"),
        ("train.optimizer=adam", "train.optimizer cannot change"),
        ("train.ema_decay=0", "train.ema_decay cannot change"),
        ("train.metric=loss", "train.metric cannot change"),
        ("model.width=64", "an existing run can only change settings of [train] and [search]"),
    ],
)
def test_what_a_run_hangs_on_cannot_change(run, capsys, setting, problem):
    before = (run / "recipe.toml").read_text()
    assert main(["resume", str(run), "--set", setting, "--set", "train.max_steps=40"]) == 2
    assert problem in capsys.readouterr().err
    assert (run / "recipe.toml").read_text() == before


def test_a_metric_of_another_task_is_told_before_training(run, tmp_path, capsys):
    assert main(train_arguments(run.parent, tmp_path / "new", "train.metric=accuracy")) == 2
    assert (
        'train.metric = "accuracy" is not a metric of data.task = "translate"; choose from bleu, chrf, loss'
        in capsys.readouterr().err
    )
    assert not (tmp_path / "new").exists()


def test_a_finished_run_says_what_would_go_on(run, capsys):
    assert main(["resume", str(run)]) == 0
    assert "finished already (30 steps done); --set train.max_steps=60 continues it" in capsys.readouterr().err


def test_a_finished_run_that_goes_on_and_is_stopped_is_not_finished(run, tmp_path, capsys, monkeypatch):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    train_step = Trainer.train_step

    def stopped(self, stop):
        stop.requested = self.progress.step >= 33
        return train_step(self, stop)

    monkeypatch.setattr(Trainer, "train_step", stopped)
    assert main(["resume", str(copy), "--set", "train.max_steps=36"]) == 130
    assert 'stopped at step 34; "regard resume' in capsys.readouterr().err
    monkeypatch.undo()
    assert main(["info", str(copy)]) == 0
    assert 'at step 34; continue with "regard resume' in capsys.readouterr().out
    assert main(["resume", str(copy)]) == 0
    assert Run.open(copy).card["training"]["step"] == 36
    assert Run.open(copy).is_finished


def test_other_data_under_the_same_name_is_refused(tmp_path, capsys):
    write_corpus(tmp_path)
    out = tmp_path / "run"
    assert main(train_arguments(tmp_path, out, "train.max_steps=2")) == 0
    text = (tmp_path / "train.en").read_text()
    (tmp_path / "train.en").write_text(text.replace("the", "a"))
    before = (out / "recipe.toml").read_text()
    assert main(["resume", str(out), "--set", "train.max_steps=4"]) == 2
    assert "train.en: has changed since" in capsys.readouterr().err
    assert (out / "recipe.toml").read_text() == before
    (tmp_path / "train.en").write_text(text)
    assert main(["resume", str(out), "--set", "train.max_steps=4"]) == 0


def test_launches_without_a_name_are_told_apart(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert _launch() == ""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "night")
    assert _launch() == "night"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    ours = _launch()
    assert ours == _launch()
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert _launch() != ours


def test_damaged_and_foreign_weights_are_told(run, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    (copy / "weights.safetensors").write_bytes(b"not weights")
    assert main(["translate", str(copy), str(run / "card.json")]) == 2
    assert "weights.safetensors: damaged" in capsys.readouterr().err
    shutil.copy(run / "weights.safetensors", copy)
    text = (copy / "recipe.toml").read_text()
    (copy / "recipe.toml").write_text(text.replace("encoder_layers = 1", "encoder_layers = 2"))
    assert main(["verify", str(copy), "--accept"]) == 0
    assert main(["translate", str(copy), str(run / "card.json")]) == 2
    assert "the weights do not fit the recipe" in capsys.readouterr().err


def test_the_python_door_trains_and_holds_out(tmp_path):
    write_corpus(tmp_path)
    small = {"encoder_layers": 1, "decoder_layers": 1, "width": 32, "heads": 2, "ffn_width": 64}
    settings = {"train": {"max_steps": 2, "validate_every": 2, "batch_tokens": 256}, "model": small}
    model = regard.train(tmp_path / "train.en", tmp_path / "train.it", out=tmp_path / "run", settings=settings)
    assert isinstance(model.translate(["I am trendy"])[0].text, str)
    card = Run.open(tmp_path / "run").card
    assert card["pairs"] == {"train": 270, "valid": 15, "test": 15}
    assert {choice["name"] for choice in card["plan"]} >= {"model.arch", "tokenizer.vocab_size"}


def test_finetuning_starts_from_the_weights_of_its_base(run, tmp_path, capsys):
    write_corpus(tmp_path, train=100)
    arguments = ["--source", str(tmp_path / "train.en"), "--target", str(tmp_path / "train.it")]
    arguments += ["--valid-source", str(tmp_path / "valid.en"), "--valid-target", str(tmp_path / "valid.it")]
    out = tmp_path / "tuned"
    assert main(["finetune", str(run), *arguments, "--out", str(out), "--set", "train.max_steps=4"]) == 0
    tuned, base = Run.open(out), Run.open(run)
    assert tuned.recipe.model == base.recipe.model
    assert tuned.recipe.train.learning_rate == base.recipe.train.learning_rate / 3
    assert tuned.recipe.train.muon_learning_rate == base.recipe.train.muon_learning_rate / 3
    assert (base.recipe.train.regularization_warmup, tuned.recipe.train.regularization_warmup) == (3000, 0)
    planned = {choice["name"] for choice in tuned.card["plan"]}
    assert planned >= {"train.validate_every", "train.patience", "train.learning_rate"}  # for its own data
    assert "train.max_steps" not in planned  # as was said
    assert tuned.card["base"] == run.name
    assert (out / "tokenizer.model").read_bytes() == (run / "tokenizer.model").read_bytes()
    first, *_ = (line["loss"] for line in tuned.metrics() if line["kind"] == "step")
    *_, last = (line["loss"] for line in base.metrics() if line["kind"] == "step")
    assert first < 1.2 * last
    shutil.rmtree(out / "checkpoints")
    (out / "checkpoints").mkdir()  # killed before the first state was whole
    weights = {name: weight.clone() for name, weight in tuned.load_network().named_parameters()}
    for name, weight in _first_model(tuned).named_parameters():
        assert torch.equal(weight, weights[name])
    assert main(["finetune", str(run), *arguments, "--set", "model.width=64"]) == 2
    assert "cannot change in fine-tuning" in capsys.readouterr().err


def test_a_finished_run_without_states_is_not_trained_anew(run, tmp_path, capsys):
    shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    before = (tmp_path / "run" / "weights.safetensors").read_bytes()
    for more in ([], ["--set", "train.max_steps=40"]):
        assert main(["resume", str(tmp_path / "run"), *more]) == 2
        assert 'its checkpoints were removed; "regard finetune" continues from its weights' in capsys.readouterr().err
    assert (tmp_path / "run" / "weights.safetensors").read_bytes() == before


def test_a_run_from_elsewhere_cannot_be_resumed(run, tmp_path, capsys):
    shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    (tmp_path / "run" / "card.json").write_text(json.dumps({"imported": {"from": "there", "format": "marian"}}))
    assert main(["resume", str(tmp_path / "run"), "--set", "train.max_steps=40"]) == 2
    assert 'was imported without a checkpoint; "regard finetune" continues' in capsys.readouterr().err


def test_long_held_out_pairs_are_bounded_and_counted(tmp_path, capsys):
    write_corpus(tmp_path, train=60, held_out=5)
    for language, word in (("en", "word"), ("it", "parola")):
        for part, counts in (("valid", (120, 400)), ("test", (400,))):  # of words; most words have several tokens
            with (tmp_path / f"{part}.{language}").open("a", encoding="utf-8") as file:
                file.writelines(f"{word} " * count + "\n" for count in counts)
    wanted = ("data.max_length=60", "train.max_steps=2", "train.validate_every=2", "tokenizer.kind=word")
    wanted += ("tokenizer.subword_regularization=0", "train.validation_sentences=0")
    assert main(train_arguments(tmp_path, tmp_path / "run", *wanted)) == 0
    told = capsys.readouterr().err
    assert "validation: 1 of 7 pairs left out: more than 240 tokens on a side\n" in told
    assert "validation: 1 of 7 pairs left out of the loss: more than 60 tokens on a side\n" in told
    assert "test: 1 of 6 pairs left out: more than 240 tokens on a side\n" in told
    scores = Run.open(tmp_path / "run").card["scores"]
    assert (scores["valid"]["sentences"], scores["test"]["sentences"]) == (6, 5)


def test_validation_without_a_pair_of_usual_length_is_refused(tmp_path, capsys):
    write_corpus(tmp_path, train=60, held_out=5)
    for language in ("en", "it"):
        (tmp_path / f"valid.{language}").write_text("word " * 100 + "\n", encoding="utf-8")
    assert main(train_arguments(tmp_path, tmp_path / "run", "data.max_length=60")) == 2
    problem = capsys.readouterr().err
    assert "valid.en: every validation pair has a source or target of more than 60 tokens; raise" in problem
    assert not (tmp_path / "run").exists()


def test_the_loss_leaves_out_pairs_that_are_too_long(run):
    translator = regard.load(run)
    model, source, target = translator.model, translator.source, translator.target
    pairs = Run.open(run).held_out()
    long = Pair("word " * 600, "parola " * 600)
    assert mean_loss(model, source, target, [*pairs, long]) == mean_loss(model, source, target, pairs)
    with pytest.raises(TrainingError, match=r"source or target of more than 250 tokens; raise data\.max_length"):
        mean_loss(model, source, target, [long])


def test_batches_of_the_loss_are_bounded_in_tokens(run, monkeypatch):
    translator, sizes = regard.load(run), []

    def watched(pairs, *rest):
        batch = make_batch(pairs, *rest)
        sizes.append(max(batch.source.ids_BS.numel(), batch.target_input_BT.numel()))
        return batch

    monkeypatch.setattr("regard.tasks.seq2seq.make_batch", watched)
    pairs = Run.open(run).held_out()[:2] + [Pair("word " * 200, "parola " * 200)] * 62
    mean_loss(translator.model, translator.source, translator.target, pairs, max_length=2000)
    assert len(sizes) > 1
    assert max(sizes) <= 16_384


def plain_arguments(folder, out, *settings):
    """Of a run whose vocabulary is left to the plan."""
    small = (
        "model.width=32",
        "model.heads=2",
        "model.ffn_width=32",
        "model.encoder_layers=1",
        "model.decoder_layers=1",
        "search.max_length_ratio=1.0",
        "search.max_length_extra=5",
    )
    said = [word for setting in (*small, "train.max_steps=2", *settings) for word in ("--set", setting)]
    return [
        "train",
        "--source",
        str(folder / "train.en"),
        "--target",
        str(folder / "train.it"),
        "--out",
        str(out),
        *said,
    ]


def test_a_vocabulary_of_words_needs_no_other_setting(tmp_path, capsys):
    write_corpus(tmp_path, train=60)
    assert main(plain_arguments(tmp_path, tmp_path / "run", "tokenizer.kind=word")) == 0
    wanted = plain_arguments(
        tmp_path, tmp_path / "other", "tokenizer.kind=word", "tokenizer.subword_regularization=0.1"
    )
    assert main(wanted) == 2
    assert "tokenizer.subword_regularization needs subwords" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("joint", ["true", "false"])
def test_a_planned_vocabulary_has_room_for_every_character(tmp_path, joint):
    """E.g. Chinese: more characters than the tokens that the plan chooses for so few pairs."""
    letters = [chr(0x4E00 + number) for number in range(3000)]
    lines = ["".join(letters[(7 * line + 13 * place) % 3000] for place in range(20)) for line in range(500)]
    (tmp_path / "train.en").write_text("\n".join(f"{line} one" for line in lines) + "\n", encoding="utf-8")
    (tmp_path / "train.it").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert (
        main(plain_arguments(tmp_path, tmp_path / "run", f"tokenizer.joint={joint}", "model.tie_embeddings=target"))
        == 0
    )
    run = Run.open(tmp_path / "run")
    assert run.recipe.tokenizer.vocab_size > 3000
    assert [side.size for side in run.tokenizers] == [run.recipe.tokenizer.vocab_size] * 2


def test_the_examples_are_not_sent_to_other_processes(tmp_path, monkeypatch):
    class Sending(ProcessGroup):
        def once(self, action):
            made = action()
            sent.append(pickle.dumps(made))
            return made

    write_corpus(tmp_path, train=60)
    sent = []
    table = {"data": {"train": [{"source": str(tmp_path / "train.en"), "target": str(tmp_path / "train.it")}]}}
    monkeypatch.setattr("regard.tasks.train.this_group", Sending)
    job = resolve(table)
    assert len(job.examples) == 54
    [other] = map(pickle.loads, sent)
    assert other == dataclasses.replace(job, examples=None)


def test_only_commands_change_how_the_process_keeps_memory(run, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr("regard.system._call_libc", lambda name, *arguments: asked.append(name))
    keep_memory.cache_clear()
    try:
        regard.load(run).translate("I am trendy")
        assert asked == []
        assert main(["info", str(run)]) == 0
        assert asked == ["mallopt"]
    finally:
        keep_memory.cache_clear()


def train_and_be_killed(arguments):
    from regard.tasks.translate import data

    data.build_store = lambda *_: os._exit(9)
    main(arguments)


def test_a_folder_whose_preparation_was_killed_is_replaced(tmp_path, capsys):
    write_corpus(tmp_path, train=60)
    wanted = train_arguments(tmp_path, tmp_path / "run", "train.max_steps=2")
    assert call(train_and_be_killed, wanted) == 9
    assert (tmp_path / "run" / "tokenizer.json").is_file()
    assert main(["resume", str(tmp_path / "run")]) == 2
    assert "was stopped while its data was prepared; train again with the same --out" in capsys.readouterr().err
    with Run(tmp_path / "run").locked():
        assert main(wanted) == 2
    assert "another process is training in this folder" in capsys.readouterr().err
    assert main(wanted) == 0
    assert not (tmp_path / "run" / ".preparing").exists()
    assert main(wanted) == 2
    assert "exists already" in capsys.readouterr().err
