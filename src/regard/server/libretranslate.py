"""LibreTranslate's API, as its clients know it: forms or JSON, languages by their codes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from regard.languages import language_name
from regard.registry import FORMATS
from regard.server.bodies import FORM, MULTIPART, FormRoute
from regard.server.errors import ApiError, Json
from regard.server.files import UPLOAD, translate_documents, translate_upload
from regard.server.schemas import (
    Detection,
    DetectRequest,
    FrontendSettings,
    Health,
    Language,
    PlainError,
    PlainTranslateRequest,
    PlainTranslation,
    TranslatedFileAnswer,
)
from regard.server.service import Service, TheService, as_attachment

MISHAPS = (400, 403, 408, 413, 415, 429, 503)
ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": PlainError} for status in MISHAPS}
PAUSE = 500
"""Milliseconds that a page should wait after a keystroke."""
_TAG = re.compile(r"<[^<>]*>")

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
    bare = [_TAG.sub(" ", text) for text in texts] if asked.format == "html" else texts  # tags are in no language
    found = service.detect(bare) if asked.source == "auto" else None
    sources = [guess["language"] for guess in found] if found is not None else [asked.source] * len(texts)
    choices = await _choices(service, asked, texts, sources)
    one = isinstance(asked.q, str)
    made: dict[str, Any] = {"translatedText": choices[0][0] if one else [best for best, *_ in choices]}
    if asked.alternatives:
        made["alternatives"] = choices[0][1:] if one else [others for _, *others in choices]
    if found is not None:
        made["detectedLanguage"] = found[0] if one else found
    return Json(made)


async def _choices(
    service: Service, asked: PlainTranslateRequest, texts: Sequence[str], sources: Sequence[str]
) -> list[list[str]]:
    """For each text its translations, best first. Texts in the same language are translated together."""
    loop = asyncio.get_running_loop()
    until = loop.time() + service.settings.timeout
    made: dict[int, list[str]] = {}
    for source in dict.fromkeys(sources):
        places = [place for place, one in enumerate(sources) if one == source]
        some = [texts[place] for place in places]
        found = await _choices_from(service, asked, some, source, deadline=until - loop.time())
        made.update(zip(places, found, strict=True))
    return [made[place] for place in range(len(texts))]


async def _choices_from(
    service: Service, asked: PlainTranslateRequest, texts: Sequence[str], source: str, *, deadline: float
) -> list[list[str]]:
    """The same for texts in one language."""
    nbest = service.nbest(asked.alternatives + 1, "alternatives")
    if service.is_same_language(source, asked.target):
        return [[text] for text in texts]
    if asked.format == "html":  # one translation each: the alternatives of its many texts do not combine
        made = await translate_documents(service, "html", texts, source, asked.target, deadline=deadline)
        return [[str(one.content)] for one in made]
    served = service.fleet.by_pair(source, asked.target)
    answers = await served.translate(texts, nbest=nbest, deadline=deadline)
    service.metrics.wrote(served.name, answers)
    return [[choice.text for choice in (answer, *answer.alternatives)] for answer in answers]


@router.post("/detect", response_model=list[Detection], responses=ERRORS, openapi_extra=form_too(DetectRequest))
async def detect(asked: DetectRequest, request: Request, service: TheService) -> Response:
    """Guess the language of a text, among those that the server translates from or into."""
    service.admit(request, asked.api_key)
    [text] = service.texts(asked.q)
    return Json(service.fleet.detect(text))


@router.get("/languages", response_model=list[Language])
async def languages(service: TheService) -> Response:
    """The languages that the server knows, and into which others each can be translated: into none, for some."""
    return Json(service.fleet.languages)


@router.get("/health", response_model=Health)
async def health() -> Response:
    """Whether the server answers."""
    return Json({"status": "ok"})


@router.get("/frontend/settings", response_model=FrontendSettings)
async def frontend_settings(service: TheService) -> Response:
    """What a page must know to use this server."""
    known = service.fleet.languages
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
            "supportedFilesFormat": list(FORMATS),
        }
    )


@router.post("/translate_file", response_model=TranslatedFileAnswer, responses=ERRORS, openapi_extra=UPLOAD)
async def translate_file(request: Request, service: TheService) -> Response:
    """Translate a file: plain text, HTML, Markdown, subtitles (SRT) or messages (PO); fetched at another address."""
    name, made = await translate_upload(request, service)
    token = service.parcels.keep(name, made.as_bytes())
    url = str(request.url_for("download_file", token=token))
    return Json({"translatedFileUrl": url, "lost": made.lost}, headers=made.headers())


@router.get("/download_file/{token}", response_class=Response, responses={404: {"model": PlainError}})
async def download_file(token: str, service: TheService) -> Response:
    """Fetch a translated file. Whoever knows its address may, for ten minutes."""
    parcel = service.parcels.find(token)
    if parcel is None:
        raise ApiError(404, "there is no such file, or no longer")
    return Response(parcel.content, media_type="application/octet-stream", headers=as_attachment(parcel.name))
