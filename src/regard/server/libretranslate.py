"""LibreTranslate's API, as its clients know it: forms or JSON, languages by their codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from regard.documents import SUFFIXES
from regard.server.bodies import FORM, MULTIPART, FormRoute
from regard.server.documents import UPLOAD, translate_documents, translate_upload
from regard.server.languages import language_name
from regard.server.parcels import as_attachment
from regard.server.problems import Json, Problem
from regard.server.schemas import (
    Detection,
    DetectRequest,
    FrontendSettings,
    Health,
    Language,
    PlainError,
    PlainTranslateRequest,
    PlainTranslation,
    TranslatedFile,
)
from regard.server.service import Service, TheService

MISHAPS = (400, 403, 408, 413, 415, 429, 503)
ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": PlainError} for status in MISHAPS}
PAUSE = 500
"""Milliseconds that a page should wait after a keystroke."""

router = APIRouter(route_class=FormRoute, tags=["LibreTranslate"])


def form_too(schema: type) -> dict[str, Any]:
    """Says in the API's description that a form is taken as well."""
    reference = {"schema": {"$ref": f"#/components/schemas/{schema.__name__}"}}
    return {"requestBody": {"content": {FORM: reference, MULTIPART: reference}}}


@router.post(
    "/translate", response_model=PlainTranslation, responses=ERRORS, openapi_extra=form_too(PlainTranslateRequest)
)
async def translate(asked: PlainTranslateRequest, request: Request, service: TheService) -> Response:
    """Translate one text or several."""
    service.admit(request, asked.api_key)
    texts = service.texts(asked.q)
    found = service.detect(texts) if asked.source == "auto" else None
    choices = await _choices(service, asked, texts, found["language"] if found else asked.source)
    one = isinstance(asked.q, str)
    made: dict[str, Any] = {"translatedText": choices[0][0] if one else [best for best, *_ in choices]}
    if asked.alternatives:
        made["alternatives"] = choices[0][1:] if one else [others for _, *others in choices]
    if found:
        made["detectedLanguage"] = found if one else [found] * len(texts)
    return Json(made)


async def _choices(
    service: Service, asked: PlainTranslateRequest, texts: Sequence[str], source: str
) -> list[list[str]]:
    """For each text its translations, best first."""
    nbest, deadline = service.nbest(asked.alternatives + 1, "alternatives"), service.settings.timeout
    if service.is_same_language(source, asked.target):
        return [[text] for text in texts]
    if asked.format == "html":  # one translation each: the alternatives of its many texts do not combine
        made = await translate_documents(service, "html", texts, source, asked.target, deadline=deadline)
        return [[str(text)] for text in made]
    served = service.fleet.by_pair(source, asked.target)
    answers = await served.translate(texts, nbest=nbest, deadline=deadline)
    service.metrics.wrote(served.name, answers)
    return [[choice.text for choice in (answer, *answer.alternatives)] for answer in answers]


@router.post("/detect", response_model=list[Detection], responses=ERRORS, openapi_extra=form_too(DetectRequest))
async def detect(asked: DetectRequest, request: Request, service: TheService) -> Response:
    """Guess the language of a text, among those that the server can translate from."""
    service.admit(request, asked.api_key)
    [text] = service.texts(asked.q)
    return Json(service.fleet.detect(text))


@router.get("/languages", response_model=list[Language])
async def languages(service: TheService) -> Response:
    """The languages that can be translated from, and into which others."""
    return Json(service.fleet.languages())


@router.get("/health", response_model=Health)
async def health() -> Response:
    """Whether the server answers."""
    return Json({"status": "ok"})


@router.get("/frontend/settings", response_model=FrontendSettings)
async def frontend_settings(service: TheService) -> Response:
    """What a page must know to use this server."""
    known = service.fleet.languages()
    source, target = (known[0]["code"], known[0]["targets"][0]) if known else ("", "")
    names = {
        side: {"code": code, "name": language_name(code)} for side, code in (("source", source), ("target", target))
    }
    return Json(
        {
            "apiKeys": service.keys is not None,
            "keyRequired": service.keys is not None,
            "charLimit": service.settings.characters,
            "filesTranslation": True,
            "frontendTimeout": PAUSE,
            "language": names,
            "suggestions": False,
            "supportedFilesFormat": list(SUFFIXES),
        }
    )


@router.post("/translate_file", response_model=TranslatedFile, responses=ERRORS, openapi_extra=UPLOAD)
async def translate_file(request: Request, service: TheService) -> Response:
    """Translate a file: plain text, HTML, Markdown, subtitles (SRT) or messages (PO); fetched at another address."""
    token = service.parcels.keep(*await translate_upload(request, service))
    return Json({"translatedFileUrl": str(request.url_for("download_file", token=token))})


@router.get("/download_file/{token}", response_class=Response, responses={404: {"model": PlainError}})
async def download_file(token: str, service: TheService) -> Response:
    """Fetch a translated file. Whoever knows its address may, for ten minutes."""
    parcel = service.parcels.find(token)
    if parcel is None:
        raise Problem(404, "there is no such file, or no longer")
    return Response(parcel.content, media_type="application/octet-stream", headers=as_attachment(parcel.name))
