"""Reward fine-tuning: gradients against enumeration, samples that depend only on seed and position, and the command."""

import shutil
import sys
from dataclasses import replace

import pytest
import torch

import regard
from regard.cli import main
from regard.config.recipe import make_recipe
from regard.data.batches import make_batch
from regard.run import Run
from regard.tasks.reward_training import (
    Candidate,
    CandidateTable,
    RewardObjective,
    minimum_risk_loss,
    policy_gradient_loss,
    score_candidates,
)
from regard.tasks.train import resolve_finetune
from regard.tasks.training import training_of
from regard.training.loss import token_log_probs
from tests.small_runs import train_arguments, write_corpus
from tests.toys import TOYS, models, sizes

WORDS, LONGEST = 5, 2


def all_outputs():
    """Every output of a model with the tokens 0 (the end) to 4, up to the length limit of two tokens."""
    some = range(1, WORDS)
    short = [Candidate(()), *(Candidate((one,)) for one in some)]
    return short + [Candidate((one, other), ended=False) for one in some for other in some]


@pytest.fixture
def model():
    torch.default_generator.manual_seed(5)
    made = models.build(TOYS["transformer-small"], **sizes(TOYS["transformer-small"], WORDS)).eval()
    with torch.no_grad():
        made.output.weight.mul_(2)  # outputs of different probabilities
    return made


@pytest.fixture
def outputs(model):
    """The log-probabilities of all outputs for one source, and a reward for each."""
    found = all_outputs()
    table = CandidateTable([found], torch.rand(1, len(found)), torch.ones(1, len(found)))
    batch = make_batch([([3, 1, 3], [1])], WORDS - 1, WORDS - 1)
    return score_candidates(model, batch, table, WORDS - 1)[0], table.reward_BC[0]


def gradients(model, loss):
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
                      if part is not None])  # fmt: skip


def test_the_probabilities_of_all_outputs_sum_to_one(outputs):
    log_prob_M, _ = outputs
    assert log_prob_M.exp().sum().item() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("baseline", [None, 0.4])
def test_the_expected_gradient_is_that_of_the_expected_reward(model, outputs, baseline):
    """Over all pairs of samples, each with its probability; a pair of equal samples is one candidate, twice."""
    log_prob_M, reward_M = outputs
    exact = gradients(model, -(log_prob_M.exp() * reward_M).sum())
    log_prob_M, reward_M = log_prob_M.double().detach().requires_grad_(), reward_M.double()
    count = len(log_prob_M)
    pair_P2 = torch.cartesian_prod(torch.arange(count), torch.arange(count))
    weight_P1 = log_prob_M.detach()[pair_P2].sum(1, keepdim=True).exp()
    equal_P = pair_P2[:, 0] == pair_P2[:, 1]
    times_P2 = torch.where(equal_P[:, None], torch.tensor([2.0, 0.0]), torch.tensor([1.0, 1.0])).double()
    baseline_P = None if baseline is None else torch.full((len(pair_P2),), baseline).double()
    # The loss is linear in the log-probabilities, so that they can carry the probability of the pair.
    loss = policy_gradient_loss(weight_P1 * log_prob_M[pair_P2], reward_M[pair_P2], times_P2, baseline_P)
    (estimate_M,) = torch.autograd.grad(loss, log_prob_M)
    found = all_outputs()
    table = CandidateTable([found], torch.zeros(1, count), torch.ones(1, count))
    again_M = score_candidates(model, make_batch([([3, 1, 3], [1])], WORDS - 1, WORDS - 1), table, WORDS - 1)[0]
    estimated = gradients(model, (estimate_M.float() * again_M).sum())
    assert (estimated - exact).abs().max() < 1e-5 * max(1.0, exact.abs().max().item())


def test_minimum_risk_by_hand():
    """Candidates with P = 0.5 and 0.125 at the sharpness 0.5: sqrt gives 2 to 1. The third place is empty."""
    log_prob_BC = torch.tensor([[0.5, 0.125, 1.0]]).log().requires_grad_()
    reward_BC, times_BC = torch.tensor([[0.9, 0.3, 0.0]]), torch.tensor([[3.0, 1.0, 0.0]])
    loss = minimum_risk_loss(log_prob_BC, reward_BC, times_BC, 0.5)
    assert loss.item() == pytest.approx(2 / 3 * 0.1 + 1 / 3 * 0.7)
    (gradient,) = torch.autograd.grad(loss, log_prob_BC)  # sharpness * Q * (risk - mean risk)
    assert gradient[0].tolist() == pytest.approx([0.5 * 2 / 3 * (0.1 - 0.3), 0.5 / 3 * (0.7 - 0.3), 0.0])


def test_minimum_risk_over_all_outputs_is_the_expected_risk(model, outputs):
    log_prob_M, reward_M = outputs
    loss = minimum_risk_loss(log_prob_M[None], reward_M[None], torch.ones(1, len(reward_M)), 1.0)
    assert loss.item() == pytest.approx(1 - (log_prob_M.exp() * reward_M).sum().item(), abs=1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_log_probabilities_in_chunks_are_those_of_a_softmax(bias, monkeypatch):
    monkeypatch.setattr("regard.training.loss.CHUNK_ROWS", 4)
    output = torch.nn.Linear(3, 7, bias=bias).double()
    states, target = torch.randn(10, 3, dtype=torch.float64, requires_grad=True), torch.randint(7, (10,))
    expected = output(states).log_softmax(-1).gather(1, target[:, None])[:, 0]
    found = token_log_probs(output, states, target)
    torch.testing.assert_close(found, expected)
    wanted = [states, *output.parameters()]
    weights = torch.randn(10, dtype=torch.float64)
    for one, other in zip(
        torch.autograd.grad(found @ weights, wanted), torch.autograd.grad(expected @ weights, wanted), strict=True
    ):
        torch.testing.assert_close(one, other)


# ---------------------------------------------------------------------------------------------------------------------
# With a run


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    write_corpus(folder)
    assert main(train_arguments(folder, folder / "run", "train.max_steps=60", "train.validate_every=30")) == 0
    return folder / "run"


def finetune(base, out, *more, steps=4):
    said = (f"train.max_steps={steps}", "train.validate_every=2", "train.batch_tokens=256", "train.log_every=2")
    return ["finetune", str(base), "--out", str(out), *more, *(word for one in said for word in ("--set", one))]


def losses_of(base, **settings):
    """A `RewardObjective` for the run, its model in training mode, and a batch of four pairs."""
    run = Run.open(base)
    table = {"translate": {"objective": "reward", **settings}, "search": {"max_length_ratio": 1.0}}
    objective = RewardObjective(make_recipe(table), *run.tokenizers)
    pairs = [[side.encode(text) for side, text in zip(run.tokenizers, pair, strict=True)] for pair in run.held_out()]
    batch = make_batch([tuple(pair) for pair in pairs[:4]], run.tokenizers[0].pad, run.tokenizers[1].pad)
    return objective, run.load_model().requires_grad_(True).train(), batch


SETTINGS = [
    {},
    {"method": "self-critical"},
    {"method": "gnmt"},
    {"candidates": "sample"},
    {"include_reference": False, "candidate_count": 3},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_rows_of_a_batch_sum_to_the_batch(base, settings):
    objective, model, batch = losses_of(base, **settings)

    def gradient(part):
        model.zero_grad()
        loss = objective.loss(model, part)
        loss.smoothed.backward()
        assert model.training
        return torch.cat([one.grad.flatten() for one in model.parameters()]), loss.measures

    whole, measures = gradient(batch)
    parts = [gradient(batch.rows(torch.tensor(rows))) for rows in ([0, 2], [1, 3])]
    assert whole.abs().max() > 0
    torch.testing.assert_close(parts[0][0] + parts[1][0], whole, atol=1e-5, rtol=1e-3)
    for name, (total, count) in measures.items():
        sums = [sum(values) for values in zip(*(found[name] for _, found in parts), strict=True)]
        assert sums == pytest.approx([total, count], rel=1e-4)
    assert measures.keys() >= {"reward", "reward_spread", "entropy", "length_ratio", "different"}
    assert ("baseline" in measures) == (settings.get("method") == "self-critical")


def test_samples_depend_on_the_position_of_the_batch(base):
    objective, model, batch = losses_of(base, method="gnmt")
    model.eval()
    found = [objective._search(model, replace(batch, seed=seed)) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_a_reward_rises(base, tmp_path, monkeypatch, capsys):
    """A function of the user, on the data of the run, from the command line."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_rewards_d.py").write_text("def short(output, reference):\n    return 1 / (1 + len(output))\n")
    out, name = tmp_path / "tuned", "own_rewards_d:short"
    more = ("--reward", name, "--set", "train.learning_rate=0.003", "--set", "translate.likelihood_weight=0")
    more += ("--set", "translate.method=gnmt", "--set", "translate.temperature=1.0")
    assert main(finetune(base, out, *more, steps=12)) == 0
    run = Run.open(out)
    first, *_, last = [line["reward"] for line in run.metrics() if line["kind"] == "validation"]
    assert last > 1.2 * first
    assert run.card["training"]["best_score"] >= last
    steps = [line for line in run.metrics() if line["kind"] == "step"]
    assert steps[-1].keys() >= {"reward", "reward_spread", "entropy", "length_ratio", "different"}
    assert steps[-1]["reward"] > steps[0]["reward"]
    assert run.recipe.task.reward == name
    assert run.card["data"] == Run.open(base).card["data"]
    assert {choice["name"] for choice in run.card["plan"]} >= {"train.validate_at_start", "train.optimizer"}

    # A run of somebody else: nothing is imported when it is used, nor when it is fine-tuned with another objective.
    del sys.modules["own_rewards_d"]
    (tmp_path / "own_rewards_d.py").write_text("raise RuntimeError('imported')\n")
    assert regard.load(out).translate(["I am trendy"])[0].text is not None
    data = ["--source", str(base.parent / "train.en"), "--target", str(base.parent / "train.it")]
    job = resolve_finetune(out, {"data": {"train": [{"source": data[1], "target": data[3]}]}})
    assert (job.recipe.task.objective, job.recipe.task.reward, job.recipe.train.metric) == (
        "likelihood",
        "gleu",
        "bleu",
    )
    capsys.readouterr()
    assert main(["resume", str(out), "--set", "train.max_steps=20"]) == 2
    assert "cannot import own_rewards_d (RuntimeError: imported)" in capsys.readouterr().err


def test_a_run_that_gains_nothing_keeps_the_weights(base, tmp_path):
    """Steps so large that they ruin the model."""
    out = tmp_path / "tuned"
    more = ("--objective", "reward", "--set", "train.learning_rate=0.1", "--set", "train.metric=loss")
    assert main(finetune(base, out, *more)) == 0
    lines = [line for line in Run.open(out).metrics() if line["kind"] == "validation"]
    assert [line["step"] for line in lines] == [0, 2, 4]
    assert [line["best"] for line in lines] == [True, False, False]
    tuned, before = (dict(Run.open(run).load_network().named_parameters()) for run in (out, base))
    assert all(torch.equal(tuned[name], before[name]) for name in before)


def test_what_cannot_be_done_is_one_line(base, tmp_path, capsys):
    def problem(*more, run=base):
        assert main(finetune(run, tmp_path / "out", *more)) == 2
        assert not (tmp_path / "out").exists()
        [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("regard: ")]
        return line

    assert 'there is no reward "glue"; did you mean "gleu"' in problem("--reward", "glue")
    assert "cannot import no_such_module" in problem("--reward", "no_such_module:f")
    assert "nothing to train on: give --source and --target" in problem()
    assert 'train.metric = "reward" needs translate.objective = "reward"' in problem(
        "--source", "phrasebook", "--set", "train.metric=reward"
    )
    assert "train.fsdp cannot be combined" in problem("--objective", "reward", "--set", "train.fsdp=true")
    moved = tmp_path / "moved"
    shutil.copytree(base, moved)
    recipe = (moved / "recipe.toml").read_text().replace("train.en", "gone.en")
    (moved / "recipe.toml").write_text(recipe)
    assert main(["verify", str(moved), "--accept"]) == 0
    capsys.readouterr()
    line = problem("--objective", "reward", run=moved)
    assert "its training data cannot be read" in line
    assert line.endswith("give the data with --source and --target")


def test_a_changed_corpus_or_another_split_is_refused(tmp_path, capsys):
    write_corpus(tmp_path, train=60)
    said = train_arguments(tmp_path, tmp_path / "run", "train.max_steps=2")
    del said[said.index("--valid-source") : said.index("--set")]
    assert main(said) == 0
    capsys.readouterr()
    assert main(finetune(tmp_path / "run", tmp_path / "out", "--objective", "reward", "--seed", "9")) == 2
    assert "train.seed = 9 would hold out other pairs" in capsys.readouterr().err
    with (tmp_path / "train.en").open("a", encoding="utf-8") as file:
        file.write("One more.\n")
    assert main(finetune(tmp_path / "run", tmp_path / "out", "--objective", "reward")) == 2
    assert "train.en: has changed since" in capsys.readouterr().err


def test_other_tasks_have_no_reward(tmp_path, capsys):
    from tests import reviews

    run = tmp_path / "run"
    assert main(reviews.train_arguments(reviews.write_reviews(tmp_path / "reviews.tsv"), run, "train.max_steps=2")) == 0
    capsys.readouterr()
    assert main(["finetune", str(run), "--objective", "reward"]) == 2
    assert "--objective and --reward are for the tasks translate and chat, not classify" in capsys.readouterr().err


def test_chat_is_trained_with_a_reward_too(tmp_path):
    from tests.small_chats import chat_arguments, write_dialogues

    run, out = tmp_path / "run", tmp_path / "out"
    few = "train.max_steps=4"
    assert main(chat_arguments(write_dialogues(tmp_path / "talks.jsonl"), run, "transformer-tiny", few)) == 0
    assert main(finetune(run, out, "--objective", "reward", "--reward", "chrf", "--set", "chat.context_turns=2")) == 0
    recipe = Run.open(out).recipe
    assert (recipe.task.objective, recipe.task.reward, recipe.task.context_turns) == ("reward", "chrf", 2)
    assert all("reward" in line for line in Run.open(out).metrics() if line["kind"] == "validation")


def test_the_default_folder_is_beside_the_base(base):
    job = resolve_finetune(base, {"translate": {"objective": "reward"}})
    assert job.folder == base.with_name("run-finetuned")
    assert training_of(job.recipe).folder(job.recipe) != job.folder
