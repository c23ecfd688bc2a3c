"""HTTP API of classification: /v1/classify and /v1/inspect."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, model_validator

from regard.tasks.api import PICTURE_WEIGHT, FieldError, InspectRequest, TaskRequest, decode_picture

if TYPE_CHECKING:
    from regard.run import Run
    from regard.tasks.classify.classifier import Classifier


class Request(TaskRequest):
    """Assign labels to one text or picture, or to several, and return the probability of each label."""

    q: str | list[str] | None = Field(None, description="The text, or a list of texts; for runs that read documents.")
    pictures: str | list[str] | None = Field(
        None,
        description="The content of a picture file (PNG, JPEG, GIF, WebP, BMP) in base64 or as a data URL; or a list. "
        "For runs that read pictures.",
    )
    explain: bool = Field(False, description="Add the attention weights of sentences and words, or of patches.")

    @model_validator(mode="after")
    def _has_one_kind(self) -> Self:
        if (self.q is None) == (self.pictures is None):
            raise FieldError("q", "send texts (q) or pictures, and not both")
        return self

    def texts(self) -> tuple[str, list[str]]:
        texts = [self.q] if isinstance(self.q, str) else self.q
        return ("pictures", []) if texts is None else ("q", texts)

    def split(self) -> list[Self]:
        name, given = ("q", self.q) if self.pictures is None else ("pictures", self.pictures)
        several = given if isinstance(given, list) else [given]
        return [self.model_copy(update={name: one}) for one in several]

    @property
    def weight(self) -> float:
        return super().weight if self.pictures is None else PICTURE_WEIGHT

    def content(self, classifier: Classifier) -> Any:
        """What the classifier reads, in a request that has exactly one text or picture."""
        given, reader = "q" if self.pictures is None else "pictures", classifier.reader
        if given != reader.field:
            raise FieldError(given, f"this run classifies {reader.unit}; send them in the field {reader.field}")
        return self.q if self.pictures is None else decode_picture(str(self.pictures))


def batch_key(request: Request) -> Hashable:
    return request.explain


def answer(classifier: Classifier, requests: Sequence[Request]) -> list[dict[str, Any]]:
    contents = [request.content(classifier) for request in requests]
    found = classifier.classify(contents, explain=requests[0].explain)
    return [one.for_page() for one in found]


def inspect(classifier: Classifier, run: Run, request: InspectRequest) -> dict[str, Any]:
    from regard.tasks.classify.inspect import inspect as inspect_document

    request.require_text_only()
    if classifier.reader.field != "q":
        raise FieldError("model", "this run reads no texts; regard inspect RUN FILE shows what it computes")
    return inspect_document(run, request.text, classifier)


def facts(run: Run) -> dict[str, Any]:
    """The size of the pictures that a run reads; nothing for documents."""
    return {name: size for name, size in run.sizes.items() if name in ("picture_height", "picture_width")}
