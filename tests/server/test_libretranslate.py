"""LibreTranslate's API: forms and JSON, one text or several, and its clients' errors."""

import gc

import pytest

from regard.server.batching import Closing, QueueFull, TooLate
from tests.server.fakes import FakeRuns, FakeTranslator, client_of

PAIR = {"source": "en", "target": "it"}


@pytest.mark.parametrize("how", ["json", "data", "files"])
def test_a_text_comes_as_json_or_as_either_kind_of_form(client, how):
    fields = {"q": "hello there", **PAIR}
    body = {name: (None, value) for name, value in fields.items()} if how == "files" else fields
    answer = client.post("/translate", **{how: body})
    assert (answer.status_code, answer.json()) == (200, {"translatedText": "HELLO THERE"})


def test_a_list_gives_a_list(client, runs):
    answer = client.post("/translate", json={"q": ["one", "two"], **PAIR})
    assert answer.json() == {"translatedText": ["ONE", "TWO"]}
    assert runs["en-it"].calls[0][0] == ["one", "two"]
    assert client.post("/translate", json={"q": [], **PAIR}).json() == {"translatedText": []}
    repeated = client.post("/translate", data={"q": ["one", "two"], **PAIR})
    assert repeated.json() == {"translatedText": ["ONE", "TWO"]}


def test_alternatives(client, runs):
    one = client.post("/translate", data={"q": "hi", "alternatives": "2", **PAIR}).json()
    assert one == {"translatedText": "HI", "alternatives": ["HI!", "HI!!"]}
    assert runs["en-it"].calls[0][1]["nbest"] == 3
    two = client.post("/translate", json={"q": ["hi", "yo"], "alternatives": 1, **PAIR}).json()
    assert two == {"translatedText": ["HI", "YO"], "alternatives": [["HI!"], ["YO!"]]}
    many = client.post("/translate", json={"q": "hi", "alternatives": 8, **PAIR})
    assert many.json()["error"] == "alternatives: at most 8 translations per text, including the best one, not 9"
    assert many.status_code == 400


def test_the_language_is_detected_when_asked_for(client):
    guess = {"language": "en", "confidence": 90.0}
    one = client.post("/translate", json={"q": "hi", "source": "auto", "target": "it"}).json()
    assert one == {"translatedText": "HI", "detectedLanguage": guess}
    two = client.post("/translate", json={"q": ["hi", "yo"], "source": "auto", "target": "it"}).json()
    assert two["detectedLanguage"] == [guess, guess]
    assert client.post("/detect", data={"q": "hi"}).json()[0] == guess


def test_each_text_is_translated_from_its_own_language():
    runs = FakeRuns(FakeTranslator("en-de", target="de"), FakeTranslator("it-de", source="it", target="de"))
    with client_of(runs) as client:
        texts = ["one", "ciao", "42", "two"]
        answer = client.post("/translate", json={"q": texts, "source": "auto", "target": "de"}).json()
        languages = [guess["language"] for guess in answer["detectedLanguage"]]
        assert answer["translatedText"] == ["ONE", "CIAO", "42", "TWO"]
        assert languages == ["en", "it", "it", "en"]  # numbers are in no language: they go with all texts together
        assert [runs[name].calls[0][0] for name in ("en-de", "it-de")] == [["one", "two"], ["ciao", "42"]]
        assert client.post("/translate", json={"q": [], "source": "auto", "target": "de"}).json() == {
            "translatedText": [], "detectedLanguage": [],
        }  # fmt: skip


def test_a_text_that_is_found_to_be_in_the_target_language_stays_as_it_is(client, runs):
    answer = client.post("/translate", json={"q": ["one", "ciao"], "source": "auto", "target": "it"}).json()
    assert answer["translatedText"] == ["ONE", "ciao"]
    assert runs["en-it"].calls[0][0] == ["one"]


@pytest.mark.parametrize("text", ["καλημέρα κόσμε", "123 !?", ""])
def test_a_language_that_cannot_be_told_is_refused(client, runs, text):
    message = "source: the language could not be detected; set its code (served: en, it)"
    for q in (text, [text]):
        answer = client.post("/translate", json={"q": q, "source": "auto", "target": "it"})
        assert (answer.status_code, answer.json()["error"]) == (400, message)
    document = client.post("/translate_file", **upload("a.txt", text.encode(), source="auto"))
    assert (document.status_code, document.json()["error"]) == (400, message)
    assert client.post("/v1/translate", json={"q": text, "target": "it"}).json()["error"]["message"] == message
    assert not runs["en-it"].calls


def test_tags_are_in_no_language(client):
    body = {"q": '<p class="ciao">one</p>', "source": "auto", "target": "it", "format": "html"}
    assert client.post("/translate", json=body).json()["detectedLanguage"]["language"] == "en"


def test_a_text_that_is_in_the_language_already_stays_as_it_is(client, runs):
    assert (
        client.post("/translate", json={"q": "Ciao", "source": "it", "target": "it"}).json()["translatedText"] == "Ciao"
    )
    assert not runs["en-it"].calls
    assert client.post("/translate", json={"q": "Ciao", "source": "xx", "target": "xx"}).status_code == 400


def test_tags_stay_and_texts_are_translated(client, runs):
    html = "<p class='a'>one <b>two</b></p>\n<script>alert(1)</script><p>a &amp; b</p>"
    answer = client.post("/translate", json={"q": html, "format": "html", **PAIR}).json()["translatedText"]
    assert answer == "<p class='a'>ONE <b>TWO</b></p>\n<script>alert(1)</script><p>A &amp; B</p>"
    assert runs["en-it"].calls[0][1]["align"]


def test_what_is_open_to_all(client):
    italian = {"code": "it", "name": "Italian", "targets": []}
    assert client.get("/languages").json() == [{"code": "en", "name": "English", "targets": ["it"]}, italian]
    assert client.request("GET", "/languages", content=b"api_key=x").status_code == 200  # as libretranslatepy sends it
    assert client.get("/health").json() == {"status": "ok"}
    settings = client.get("/frontend/settings").json()
    assert settings["language"]["source"] == {"code": "en", "name": "English"}
    assert settings["language"]["target"] == {"code": "it", "name": "Italian"}
    assert settings["keyRequired"] is False
    assert settings["charLimit"] == 20_000
    assert ".html" in settings["supportedFilesFormat"]


BAD = {
    "no text": ({"source": "en", "target": "it"}, "q: Field required"),
    "a number": ({"q": 3, **PAIR}, "q: "),
    "numbers": ({"q": ["a", 3], **PAIR}, "q.1: "),
    "null": ({"q": None, **PAIR}, "q: "),
    "unknown pair": ({"q": "a", "source": "en", "target": "xx"}, "en to xx is not served"),
    "unknown format": ({"q": "a", "format": "rtf", **PAIR}, "format: "),
    "less than none": ({"q": "a", "alternatives": -1, **PAIR}, "alternatives: "),
    "a number as text": ({"q": "a", "alternatives": "1", **PAIR}, "alternatives: "),
    "not an object": (["a"], "the body: "),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_are_told_what_is_wrong(client, case):
    body, message = BAD[case]
    answer = client.post("/translate", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(message)


NOT_JSON = {
    b"": "the body: Field required",
    b"{": "the body is not valid JSON",
    b"\x00" * 50: "the body is not valid JSON",
    b'{"q": 1' + b"0" * 10_000 + b"}": "the body is not valid JSON",
    b"[" * 100_000: "the JSON is nested too deeply",
    b'{"q": "\xff\xfe"}': "the body is not UTF-8",
    b'{"q": "\xed\xa0\x80"}': "the body is not UTF-8",
    b'{"q": "\\ud800"}': "the body is not UTF-8, or has half a \\u surrogate pair; send valid text",
    '{"q": "a", "source": "en", "target": "it"}'.encode("utf-16"): "the body is not UTF-8",
    b"NaN": "the body: ",
}


@pytest.mark.parametrize("content", NOT_JSON)
def test_what_is_not_json_is_refused(client, content):
    answer = client.post("/translate", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(NOT_JSON[content])


def test_whole_characters_in_two_halves_are_read(client):
    content = b'{"q": "\\ud83d\\ude00", "source": "en", "target": "it"}'
    answer = client.post("/translate", content=content, headers={"Content-Type": "application/json"})
    assert answer.json()["translatedText"] == "\U0001f600"


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "", "application/jsonp", "image/png"])
def test_other_kinds_of_bodies_are_refused(client, kind):
    answer = client.post("/translate", content=b"q=1", headers={"Content-Type": kind})
    assert answer.status_code == 415


FORM = {"Content-Type": "application/x-www-form-urlencoded"}
PARTS = {"Content-Type": "multipart/form-data; boundary=x"}


@pytest.mark.parametrize("q", ["Questo tè è caldo.".encode(), b"Questo+t%C3%A8+%c3%a8 caldo."])
def test_forms_are_utf_8_with_and_without_percent_signs(client, q):
    answer = client.post("/translate", content=b"q=" + q + b"&source=en&target=it", headers=FORM)
    assert answer.json()["translatedText"] == "QUESTO TÈ È CALDO."


def part(name, value):
    return f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + value + b"\r\n"


def test_parts_of_a_form_are_utf_8(client):
    rest = part("source", b"en") + part("target", b"it") + b"--x--\r\n"
    answer = client.post("/translate", content=part("q", "tè".encode()) + rest, headers=PARTS)
    assert answer.json()["translatedText"] == "TÈ"
    other = client.post("/translate", content=part("q", "tè".encode("latin-1")) + rest, headers=PARTS)
    assert (other.status_code, other.json()["error"]) == (400, "the form is not UTF-8; encode its fields as UTF-8")


@pytest.mark.parametrize("q", [b"t\xe8", b"t%E8", b"%ed%a0%80"])
def test_forms_in_other_encodings_are_refused(client, q):
    answer = client.post("/translate", content=b"q=" + q + b"&source=en&target=it", headers=FORM)
    assert (answer.status_code, answer.json()["error"]) == (400, "the form is not UTF-8; encode its fields as UTF-8")


def test_forms_of_any_characters_are_read(client):
    answer = client.post("/translate", content=b"q=%00%1b&source=en&target=it", headers=FORM)
    assert answer.json()["translatedText"] == "\x00\x1b"
    many = client.post("/translate", content=b"a=b&" * 1001, headers=FORM)
    assert (many.status_code, many.json()["error"]) == (400, "the form has more than 1000 fields; send fewer")
    broken = client.post("/translate", content=b"--x", headers={"Content-Type": "multipart/form-data"})
    assert broken.status_code == 400


@pytest.mark.parametrize(
    ("trouble", "status", "wait"), [(QueueFull(2.2), 429, "3"), (TooLate("late"), 503, "1"), (Closing("bye"), 503, "5")]
)
def test_a_busy_server_says_when_to_come_again(client, runs, trouble, status, wait):
    runs["en-it"].trouble = trouble
    answer = client.post("/translate", json={"q": "a", **PAIR})
    assert (answer.status_code, answer.headers["retry-after"]) == (status, wait)
    assert answer.json()["error"].endswith("try again later")


def test_limits_of_texts(runs):
    with client_of(runs, texts=2, characters=10) as client:
        assert client.post("/translate", json={"q": ["a", "b"], **PAIR}).status_code == 200
        many = client.post("/translate", json={"q": ["a", "b", "c"], **PAIR})
        assert many.json()["error"] == "q: at most 2 texts in one request, not 3"
        long = client.post("/translate", json={"q": ["aaaaa", "bbbbbb"], **PAIR})
        assert long.json()["error"] == "q: at most 10 characters in one request, not 11"
        assert (many.status_code, long.status_code) == (400, 400)
        assert client.post("/detect", json={"q": "a" * 11}).status_code == 400


def upload(name, content, **fields):
    return {"files": {"file": (name, content)}, "data": PAIR | fields}


def test_a_file_is_translated_and_fetched(client):
    made = client.post("/translate_file", **upload("../my notes.txt", b"one\n\ntwo\n"))
    assert made.status_code == 200
    url = made.json()["translatedFileUrl"]
    assert url.startswith("http://localhost/download_file/")
    fetched = client.get(url)
    assert fetched.content == b"ONE\n\nTWO\n"
    assert fetched.headers["content-disposition"] == "attachment; filename*=UTF-8''my%20notes.it.txt"
    assert client.get("/download_file/guessed").status_code == 404


def test_a_file_comes_back_at_once_from_v1(client):
    made = client.post("/v1/documents", **upload("page.html", b"<p>one</p>", source="auto"))
    assert (made.status_code, made.content) == (200, b"<p>ONE</p>")
    assert made.headers["x-regard-lost"] == "0"


def test_what_a_model_leaves_out_of_a_file_is_told(client):
    file = upload("a.txt", b"pay {amount} now\n\nnow\n")  # in capitals it is another placeholder
    made = client.post("/v1/documents", **file)
    assert made.headers["x-regard-lost"] == "1"
    fetched = client.post("/translate_file", **file)
    assert (fetched.headers["x-regard-lost"], fetched.json()["lost"]) == ("1", ["{amount}"])


def test_a_large_file_waits_where_the_queue_is_full(client, runs):
    served = runs["en-it"]
    refusals = iter([None, QueueFull(0.0), None])

    async def pause():
        if trouble := next(refusals, None):
            raise trouble

    served.pause = pause
    text = "".join(f"line {number}\n\n" for number in range(100))
    made = client.post("/v1/documents", **upload("a.txt", text.encode()))
    assert made.content.decode() == text.upper()
    assert [len(texts) for texts, _ in served.calls] == [64, 36, 36]
    served.trouble = QueueFull(1.0)
    assert client.post("/v1/documents", **upload("a.txt", text.encode())).status_code == 429


UPLOADS = {
    "no file": {"data": PAIR, "files": {"other": ("a.txt", b"a")}},
    "a text": {"files": {name: (None, value) for name, value in {"file": "a", **PAIR}.items()}},
    "no language": {"files": {"file": ("a.txt", b"a")}, "data": {"source": "en"}},
    "unknown format": upload("a.exe", b"MZ"),
    "no name": upload("x", b"a"),
    "not UTF-8": upload("a.txt", b"\xff\xfe"),
    "two files": {"files": [("file", ("a.txt", b"a")), ("file", ("b.txt", b"b"))], "data": PAIR},
}


@pytest.mark.parametrize("case", UPLOADS)
@pytest.mark.parametrize("path", ["/translate_file", "/v1/documents"])
def test_bad_uploads_are_told_what_is_wrong(client, case, path):
    answer = client.post(path, **UPLOADS[case])
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]


@pytest.mark.parametrize("end", ["", "\r\n--b", "\r\n--x--", "--b--"])
def test_a_form_that_ends_early_is_refused_and_leaves_no_file_open(client, end):
    fields = "".join(
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in (("source", "en"), ("target", "it"))
    )
    file = '--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhello'
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = client.post("/v1/documents", content=(fields + file + end).encode(), headers=headers)
    assert answer.status_code == 400
    assert "closing boundary" in answer.json()["error"]["message"]
    gc.collect()  # a file that is still open gives a warning, which is an error here
    whole = client.post("/v1/documents", content=(fields + file + "\r\n--b--\r\n").encode(), headers=headers)
    assert (whole.status_code, whole.text) == (200, "HELLO")
