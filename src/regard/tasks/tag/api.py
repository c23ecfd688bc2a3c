"""HTTP API of tagging: /v1/tag and /v1/inspect."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from regard.tasks.api import InspectRequest, TextRequest

if TYPE_CHECKING:
    from regard.run import Run
    from regard.tasks.tag.tagger import Tagger


class Request(TextRequest):
    """Label the words of one or several sentences, and return the spans that the labels mark."""

    explain: bool = Field(False, description="Add the most probable labels and the influence of each word.")


def batch_key(request: Request) -> Hashable:
    return request.explain


def answer(tagger: Tagger, requests: Sequence[Request]) -> list[dict[str, Any]]:
    tagged = tagger.tag([request.text for request in requests], explain=requests[0].explain)
    return [one.as_dict() for one in tagged]


def inspect(tagger: Tagger, run: Run, request: InspectRequest) -> dict[str, Any]:
    from regard.tasks.tag.inspect import inspect as inspect_sentence

    request.require_text_only()
    return inspect_sentence(run, request.text, tagger)
