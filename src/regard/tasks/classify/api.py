"""HTTP API of classification: /v1/classify and /v1/inspect."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from regard.tasks.api import InspectRequest, TextRequest

if TYPE_CHECKING:
    from regard.run import Run
    from regard.tasks.classify.classifier import Classifier


class Request(TextRequest):
    """Assign labels to one text or several, and return the probability of each label."""

    explain: bool = Field(False, description="Add the attention weight of each sentence and word.")


def batch_key(request: Request) -> Hashable:
    return request.explain


def answer(classifier: Classifier, requests: Sequence[Request]) -> list[dict[str, Any]]:
    found = classifier.classify([request.text for request in requests], explain=requests[0].explain)
    return [one.as_dict() for one in found]


def inspect(classifier: Classifier, run: Run, request: InspectRequest) -> dict[str, Any]:
    from regard.tasks.classify.inspect import inspect as inspect_document

    request.require_text_only()
    return inspect_document(run, request.text, classifier)
