"""HTTP API of classification: /v1/classify and /v1/inspect."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, model_validator

from regard.errors import CorpusError
from regard.tasks.api import FRAMES_HELP, FieldError, Frames, InspectRequest, PictureRequest, divide_series

if TYPE_CHECKING:
    from regard.run import Run
    from regard.tasks.classify.classifier import Classifier

FACTS = ("picture_height", "picture_width", "frame_width")
"""Sizes of a run that a client needs to know."""


class Request(PictureRequest):
    """Assign labels to one text, picture or series, or to several, and return the probability of each label."""

    q: str | list[str] | None = Field(None, description="The text, or a list of texts; for runs that read documents.")
    pictures: str | list[str] | None = Field(  # type: ignore[assignment]  # other requests with pictures need some
        None,
        description="The content of a picture file (PNG, JPEG, GIF, WebP, BMP) in base64 or as a data URL; or a list. "
        "For runs that read pictures.",
    )
    frames: Frames | list[Frames] | None = Field(None, description=FRAMES_HELP)
    explain: bool = Field(False, description="Add the attention weights of words, of patches or of frames.")

    @model_validator(mode="after")
    def _has_one_kind(self) -> Self:
        if sum(given is not None for given in (self.q, self.pictures, self.frames)) != 1:
            raise FieldError("q", "send texts (q), pictures or frames, and only one of them")
        return self

    @property
    def given(self) -> str:
        """The name of the field that the request has."""
        return next(name for name in ("q", "pictures", "frames") if getattr(self, name) is not None)

    def texts(self) -> tuple[str, list[Any]]:
        if self.frames is not None:
            return "frames", [list(chain.from_iterable(one)) for one in divide_series(self.frames)]
        if self.q is None:
            return super().texts()
        return "q", [self.q] if isinstance(self.q, str) else self.q

    @property
    def limits(self) -> tuple[str, str]:
        return super().limits if self.frames is None else ("series", "numbers")

    def split(self) -> list[Self]:
        if self.frames is not None:
            return [self.model_copy(update={"frames": one}) for one in divide_series(self.frames)]
        return super().split() if self.q is None else [self.model_copy(update={"q": text}) for text in self.texts()[1]]

    @property
    def weight(self) -> float:
        return sum(map(len, self.texts()[1])) if self.pictures is None else super().weight

    def content(self, classifier: Classifier) -> Any:
        """What the classifier reads, in a request that has exactly one text, picture or series."""
        reader = classifier.reader
        if self.given != reader.field:
            raise FieldError(self.given, f"this run classifies {reader.unit}; send them in the field {reader.field}")
        if self.pictures is None:
            return self.q if self.frames is None else self.frames
        from regard.tasks.classify.pictures.data import NamedPicture

        try:
            return NamedPicture("", reader.encode([self.picture])[0])
        except CorpusError as error:  # a damaged picture
            raise self.refusal(str(error).removeprefix("picture 1: ")) from None


def batch_key(request: Request) -> Hashable:
    return request.explain, request.given, len(request.frames[0]) if request.frames else 0


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
    """The size of the pictures or frames that a run reads; nothing for documents."""
    return {name: size for name, size in run.sizes.items() if name in FACTS}
