"""The plan for encoders of questions: it follows the data, and leaves alone what was said."""

from regard.tasks.retrieve.data import KnowledgeFacts
from regard.tasks.retrieve.training import make_retrieval_plan

SMALL, LARGE = KnowledgeFacts(300, 8.0, names=False), KnowledgeFacts(50_000, 10.0, names=True)


def values(data, given=None):
    return {choice.name: choice.value for choice in make_retrieval_plan(data, given or {})}


def test_sizes_follow_the_data():
    small, large = values(SMALL), values(LARGE)
    assert small["tokenizer.vocab_size"] < large["tokenizer.vocab_size"] <= 16_000
    assert small["model.width"] < large["model.width"]
    assert small["train.batch_tokens"] < large["train.batch_tokens"]
    assert large["train.max_steps"] >= 20 * LARGE.texts * LARGE.tokens / large["train.batch_tokens"] / 2


def test_names_are_not_compared():
    assert values(LARGE)["retrieve.match_answers"] is False
    assert "retrieve.match_answers" not in values(SMALL)


def test_what_was_said_stays_and_is_followed():
    given = {"train": {"batch_tokens": 1024, "warmup_steps": 7}, "retrieve": {"match_answers": True}}
    found = values(LARGE, given)
    assert found.keys().isdisjoint({"train.batch_tokens", "train.warmup_steps", "retrieve.match_answers"})
    assert found["train.max_steps"] > values(LARGE)["train.max_steps"]


def test_every_choice_has_a_reason():
    assert all(choice.reason for data in (SMALL, LARGE) for choice in make_retrieval_plan(data, {}))
