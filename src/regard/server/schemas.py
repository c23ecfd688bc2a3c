"""Schemas of requests and results that several routes share, as /openapi.json describes them.

The requests of tasks are in regard/tasks/*/api.py, those of LibreTranslate and OpenAI beside their routes. Results are
only described; the tests check that they match.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class RequestBody(BaseModel):
    """A request in the format of another API. Types are strict (no "3" for 3), unknown fields are ignored."""

    model_config = ConfigDict(strict=True)


class Results(BaseModel):
    """One result per text or conversation of the request. Their fields depend on the task."""

    model: str
    results: list[dict[str, Any]]


class ModelFacts(BaseModel):
    """A served run."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    task: str
    source: str
    target: str
    arch: str
    parameters: int
    scores: dict[str, Any] = Field({}, description="Scores on held-out data, with their signatures.")
    facts: dict[str, Any] = Field(
        {}, description="Figures of the task, e.g. the `questions` and `answers` of a knowledge base."
    )


class ModelList(BaseModel):
    """All served runs."""

    object: Literal["list"]
    data: list[ModelFacts]


class TaskFacts(BaseModel):
    """A task, and the served runs that were trained for it."""

    name: str
    help: str
    chat: bool = Field(description="Whether its runs reply to conversations (POST /v1/chat/completions).")
    inspect: bool = Field(description="Whether its runs can be inspected (POST /v1/inspect).")
    models: list[str]


class TaskList(BaseModel):
    """All tasks that this server knows."""

    data: list[TaskFacts]


class ErrorFacts(BaseModel):
    """Description of an error."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(BaseModel):
    """An error in OpenAI's format."""

    error: ErrorFacts
