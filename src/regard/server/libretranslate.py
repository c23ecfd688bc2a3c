"""The routes of LibreTranslate's API. Requests are JSON or forms; languages are given by their codes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from regard.languages import language_name
from regard.registry import FORMATS
from regard.server.bodies import FORM, MULTIPART, FormRoute, RequestBody
from regard.server.errors import ApiError, Json
from regard.server.files import UPLOAD, as_attachment, translate_documents, translate_upload
from regard.server.service import Service, TheService

_TAG = re.compile(r"<[^<>]*>")


# Requests and results


class PlainTranslateRequest(RequestBody):
    """A translation request in LibreTranslate's format."""

    q: str | list[str] = Field(description="The text, or a list of texts.")
    source: str = Field(description='Language code of the text, or "auto".')
    target: str = Field(description="Language code to translate into.")
    format: Literal["text", "html"] = Field("text", description="html: the text has HTML tags, which are kept.")
    alternatives: int = Field(0, ge=0, description="Number of alternative translations.")
    api_key: str = Field("", description="API key, if the server requires one.")


class DetectRequest(RequestBody):
    """A request to detect the language of a text, in LibreTranslate's format."""

    q: str = Field(description="The text.")
    api_key: str = Field("", description="API key, if the server requires one.")


class Detection(BaseModel):
    """The code of a detected language, and how certain the detection is."""

    confidence: float = Field(description="From 0 to 100.")
    language: str


class PlainTranslation(BaseModel):
    """A translation in LibreTranslate's format; its fields are lists if the `q` of the request was a list."""

    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: Detection | list[Detection] | None = None


class Health(BaseModel):
    """The response of GET /health, in LibreTranslate's format."""

    status: Literal["ok"]


class LanguageName(BaseModel):
    """The code of a language, e.g. "en", and its name."""

    code: str
    name: str


class Language(LanguageName):
    """A language and the codes of the languages that it can be translated into (none if it is only a target)."""

    targets: list[str]


class LanguagePair(BaseModel):
    """The source and target language that a web page should select at first."""

    source: LanguageName
    target: LanguageName


class FrontendSettings(BaseModel):
    """Settings for web pages that use this server, in LibreTranslate's format."""

    apiKeys: bool
    keyRequired: bool
    charLimit: int
    filesTranslation: bool
    frontendTimeout: int
    language: LanguagePair
    suggestions: bool
    supportedFilesFormat: list[str]


class TranslatedFileAnswer(BaseModel):
    """The URL of a translated file, valid for ten minutes, and what the model omitted."""

    translatedFileUrl: str
    lost: list[str] = Field([], description="URLs, placeholders, code and numbers that the model omitted.")


class PlainError(BaseModel):
    """An error in LibreTranslate's format."""

    error: str


# Routes

ERRORS: dict[int | str, Any] = {status: {"model": PlainError} for status in (400, 403, 408, 413, 415, 429, 503)}
router = APIRouter(route_class=FormRoute, tags=["LibreTranslate"])


def form_body(schema: type) -> dict[str, Any]:
    """An addition to the OpenAPI description of a route: it also accepts a form with the fields of `schema`."""
    reference = {"schema": {"$ref": f"#/components/schemas/{schema.__name__}"}}
    return {"requestBody": {"content": {FORM: reference, MULTIPART: reference}}}


@router.post(
    "/translate", response_model=PlainTranslation, responses=ERRORS, openapi_extra=form_body(PlainTranslateRequest)
)
async def translate(asked: PlainTranslateRequest, request: Request, service: TheService) -> Response:
    """Translate one text or several."""
    service.require_key(request, asked.api_key)
    texts = service.check_texts(asked.q)
    sources, detected = [asked.source] * len(texts), None
    if asked.source == "auto":
        detected = service.detect([_TAG.sub(" ", text) for text in texts] if asked.format == "html" else texts)
        sources = [guess["language"] for guess in detected]
    translations = await _translations(service, asked, texts, sources)
    made: dict[str, list[Any]] = {"translatedText": [best for best, *_ in translations]}
    if asked.alternatives:
        made["alternatives"] = [others for _, *others in translations]
    if detected is not None:
        made["detectedLanguage"] = detected
    return Json({name: found[0] for name, found in made.items()} if isinstance(asked.q, str) else made)


async def _translations(
    service: Service, asked: PlainTranslateRequest, texts: Sequence[str], sources: Sequence[str]
) -> list[list[str]]:
    """The translations of each text, best first. Texts with the same source language are translated together."""
    loop = asyncio.get_running_loop()
    until = loop.time() + service.settings.timeout
    made: dict[int, list[str]] = {}
    for source in dict.fromkeys(sources):
        nbest = service.check_nbest(asked.alternatives + 1, "alternatives")
        places = [place for place, one in enumerate(sources) if one == source]
        some, left = [texts[place] for place in places], until - loop.time()
        if service.is_same_language(source, asked.target):
            found = [[text] for text in some]
        elif asked.format == "html":  # no alternatives: those of the many texts of a page cannot be combined
            files = await translate_documents(service, "html", some, source, asked.target, deadline=left)
            found = [[str(file.content)] for file in files]
        else:
            served = service.runs.by_pair(source, asked.target)
            answers = await served.handler.translate_texts(some, nbest=nbest, deadline=left)
            service.metrics.count_texts(served.name, [len(answer.tokens) for answer in answers])
            found = [[choice.text for choice in (answer, *answer.alternatives)] for answer in answers]
        made.update(zip(places, found, strict=True))
    return [made[place] for place in range(len(texts))]


@router.post("/detect", response_model=list[Detection], responses=ERRORS, openapi_extra=form_body(DetectRequest))
async def detect(asked: DetectRequest, request: Request, service: TheService) -> Response:
    """Detect the language of a text, among the languages that the server translates from or into."""
    service.require_key(request, asked.api_key)
    [text] = service.check_texts(asked.q)
    return Json(service.runs.detect(text))


@router.get("/languages", response_model=list[Language])
async def languages(service: TheService) -> Response:
    """List the served languages, and for each the languages that it can be translated into."""
    return Json(service.runs.languages)


@router.get("/health", response_model=Health)
async def health() -> Response:
    """Report that the server answers."""
    return Json({"status": "ok"})


@router.get("/frontend/settings", response_model=FrontendSettings)
async def frontend_settings(service: TheService) -> Response:
    """Return settings for web pages that use this server."""
    known = service.runs.languages
    pair = {"source": known[0]["code"], "target": known[0]["targets"][0]} if known else {"source": "", "target": ""}
    return Json(
        {
            "apiKeys": service.keys is not None,
            "keyRequired": service.keys is not None,
            "charLimit": service.settings.characters,
            "filesTranslation": True,
            "frontendTimeout": 500,  # milliseconds that a web page should wait after a keystroke
            "language": {side: {"code": code, "name": language_name(code)} for side, code in pair.items()},
            "suggestions": False,
            "supportedFilesFormat": list(FORMATS),
        }
    )


@router.post("/translate_file", response_model=TranslatedFileAnswer, responses=ERRORS, openapi_extra=UPLOAD)
async def translate_file(request: Request, service: TheService) -> Response:
    """Translate a file: text, HTML, Markdown, subtitles or PO messages. The response has the address of the result."""
    made = await translate_upload(request, service)
    token = service.downloads.keep(made.name, made.content)
    url = str(request.url_for("download_file", token=token))
    return Json({"translatedFileUrl": url, "lost": made.lost}, headers=made.headers)


@router.get("/download_file/{token}", response_class=Response, responses={404: {"model": PlainError}})
async def download_file(token: str, service: TheService) -> Response:
    """Download a translated file. Its address is valid for ten minutes and needs no key."""
    if (found := service.downloads.find(token)) is None:
        raise ApiError(404, "there is no such file; translated files are kept for ten minutes, so translate it again")
    name, content = found
    return Response(content, media_type="application/octet-stream", headers=as_attachment(name))
