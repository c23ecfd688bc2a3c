"""LibreTranslate's API: forms or JSON, languages by their codes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from regard.languages import language_name
from regard.registry import FORMATS
from regard.server.bodies import FORM, MULTIPART, FormRoute
from regard.server.errors import ApiError, Json
from regard.server.files import UPLOAD, as_attachment, translate_documents, translate_upload
from regard.server.schemas import RequestBody
from regard.server.service import Service, TheService

PAUSE = 500
"""Milliseconds that a web page should wait after a keystroke."""
_TAG = re.compile(r"<[^<>]*>")


# Requests and results


class PlainTranslateRequest(RequestBody):
    """A translation request in LibreTranslate's format."""

    q: str | list[str] = Field(description="The text, or a list of texts.")
    source: str = Field(description='Language code of the text, or "auto".')
    target: str = Field(description="Language code to translate into.")
    format: Literal["text", "html"] = Field("text", description="html: tags are kept in place.")
    alternatives: int = Field(0, ge=0, description="Number of alternative translations.")
    api_key: str = Field("", description="API key, if the server requires one.")


class DetectRequest(RequestBody):
    """A text whose language is to be detected."""

    q: str = Field(description="The text.")
    api_key: str = Field("", description="API key, if the server requires one.")


class Detection(BaseModel):
    """A detected language."""

    confidence: float = Field(description="From 0 to 100.")
    language: str


class PlainTranslation(BaseModel):
    """A translation in LibreTranslate's format: lists if `q` was a list."""

    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: Detection | list[Detection] | None = None


class Health(BaseModel):
    """The server answers."""

    status: Literal["ok"]


class LanguageName(BaseModel):
    """A language."""

    code: str
    name: str


class Language(LanguageName):
    """A language, and the languages that it can be translated into; empty if it is only a target."""

    targets: list[str]


class LanguagePair(BaseModel):
    """The default language pair."""

    source: LanguageName
    target: LanguageName


class FrontendSettings(BaseModel):
    """Settings for web pages that use this server."""

    apiKeys: bool
    keyRequired: bool
    charLimit: int
    filesTranslation: bool
    frontendTimeout: int
    language: LanguagePair
    suggestions: bool
    supportedFilesFormat: list[str]


class TranslatedFileAnswer(BaseModel):
    """Address of the translated file, valid for some minutes."""

    translatedFileUrl: str
    lost: list[str] = Field([], description="Addresses, placeholders, code and numbers that the model left out.")


class PlainError(BaseModel):
    """An error in LibreTranslate's format."""

    error: str


# Routes

ERROR_STATUSES = (400, 403, 408, 413, 415, 429, 503)
ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": PlainError} for status in ERROR_STATUSES}
router = APIRouter(route_class=FormRoute, tags=["LibreTranslate"])


def form_too(schema: type) -> dict[str, Any]:
    """Adds to the API description that a form is accepted too."""
    reference = {"schema": {"$ref": f"#/components/schemas/{schema.__name__}"}}
    return {"requestBody": {"content": {FORM: reference, MULTIPART: reference}}}


@router.post(
    "/translate", response_model=PlainTranslation, responses=ERRORS, openapi_extra=form_too(PlainTranslateRequest)
)
async def translate(asked: PlainTranslateRequest, request: Request, service: TheService) -> Response:
    """Translate one text or several."""
    service.require_key(request, asked.api_key)
    texts = service.check_texts(asked.q)
    bare = [_TAG.sub(" ", text) for text in texts] if asked.format == "html" else texts  # without tags
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
    """The translations of each text, best first. Texts in the same language are translated together."""
    loop = asyncio.get_running_loop()
    until = loop.time() + service.settings.timeout
    made: dict[int, list[str]] = {}
    for source in dict.fromkeys(sources):
        nbest = service.check_nbest(asked.alternatives + 1, "alternatives")
        places = [place for place, one in enumerate(sources) if one == source]
        some, left = [texts[place] for place in places], until - loop.time()
        if service.is_same_language(source, asked.target):
            found = [[text] for text in some]
        elif asked.format == "html":  # one translation only: alternatives of the many texts in it do not combine
            files = await translate_documents(service, "html", some, source, asked.target, deadline=left)
            found = [[str(file.content)] for file in files]
        else:
            served = service.runs.by_pair(source, asked.target)
            answers = await served.handler.translate_texts(some, nbest=nbest, deadline=left)
            service.metrics.count_texts(served.name, [len(answer.tokens) for answer in answers])
            found = [[choice.text for choice in (answer, *answer.alternatives)] for answer in answers]
        made.update(zip(places, found, strict=True))
    return [made[place] for place in range(len(texts))]


@router.post("/detect", response_model=list[Detection], responses=ERRORS, openapi_extra=form_too(DetectRequest))
async def detect(asked: DetectRequest, request: Request, service: TheService) -> Response:
    """Detect the language of a text, among those that the server translates from or into."""
    service.require_key(request, asked.api_key)
    [text] = service.check_texts(asked.q)
    return Json(service.runs.detect(text))


@router.get("/languages", response_model=list[Language])
async def languages(service: TheService) -> Response:
    """List the served languages, and the languages that each can be translated into."""
    return Json(service.runs.languages)


@router.get("/health", response_model=Health)
async def health() -> Response:
    """Report that the server answers."""
    return Json({"status": "ok"})


@router.get("/frontend/settings", response_model=FrontendSettings)
async def frontend_settings(service: TheService) -> Response:
    """Settings for web pages that use this server."""
    known = service.runs.languages
    source, target = (known[0]["code"], known[0]["targets"][0]) if known else ("", "")
    return Json(
        {
            "apiKeys": service.keys is not None,
            "keyRequired": service.keys is not None,
            "charLimit": service.settings.characters,
            "filesTranslation": True,
            "frontendTimeout": PAUSE,
            "language": {
                "source": {"code": source, "name": language_name(source)},
                "target": {"code": target, "name": language_name(target)},
            },
            "suggestions": False,
            "supportedFilesFormat": list(FORMATS),
        }
    )


@router.post("/translate_file", response_model=TranslatedFileAnswer, responses=ERRORS, openapi_extra=UPLOAD)
async def translate_file(request: Request, service: TheService) -> Response:
    """Translate a file, e.g. text, HTML, Markdown, subtitles or PO messages. The response has its address."""
    made = await translate_upload(request, service)
    token = service.downloads.keep(made.name, made.content)
    url = str(request.url_for("download_file", token=token))
    return Json({"translatedFileUrl": url, "lost": made.lost}, headers=made.headers)


@router.get("/download_file/{token}", response_class=Response, responses={404: {"model": PlainError}})
async def download_file(token: str, service: TheService) -> Response:
    """Download a translated file. Its address is valid for ten minutes and needs no key."""
    file = service.downloads.find(token)
    if file is None:
        raise ApiError(404, "there is no such file; translated files are kept for ten minutes")
    return Response(file.content, media_type="application/octet-stream", headers=as_attachment(file.name))
