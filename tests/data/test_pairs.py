"""Every format, plain and packed, and every error by its exact line."""

from __future__ import annotations

import builtins
import gzip
import hashlib
import json
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.config import Corpus
from regard.data.builtin import read_phrases
from regard.data.pairs import Pair, content_hash, find_language, read_corpus
from regard.errors import CorpusError
from regard.files import read_lines

PAIRS = [
    Pair("Good day", "Guten Tag"),
    Pair("", "leer"),
    Pair("cat\u2028 dog\x0b", "Katze  Größe"),
    Pair("ok ", " gut"),
]
SHARED = Path(__file__).parents[3] / "shared" / "data"

TMX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="EN-US" segtype="sentence"/><body>
<tu><note>greeting</note><tuv xml:lang="EN-US"><seg>Good <bpt i="1">&lt;b&gt;</bpt>day<ept i="1">&lt;/b&gt;</ept></seg>
</tuv><tuv xml:lang="de-DE"><seg>Guten <hi>Tag</hi></seg></tuv></tu>
<tu><tuv xml:lang="EN-US"><seg>Only French here</seg></tuv><tuv xml:lang="fr"><seg>Ici</seg></tuv></tu>
<tu><tuv lang="en-us"><seg>Press <ph x="1">{0}</ph>now</seg></tuv>
<tuv lang="DE"><prop>x</prop><seg>Jetzt</seg></tuv></tu>
<tu><tuv xml:lang="EN-US"><seg/></tuv><tuv xml:lang="de-DE"><seg>leer</seg></tuv></tu>
</body></tmx>
"""
TMX_PAIRS = [("Good day", "Guten Tag"), ("Press now", "Jetzt"), ("", "leer")]

PO = r"""msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Language: ru\n"

msgid "Open"
msgstr "Открыть"

#, fuzzy
msgid "Close"
msgstr "Закрыто?"

msgid "Nothing"
msgstr ""

msgid ""
"Two\n"
"lines"
msgstr "Две строки"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d файл"
msgstr[1] "%d файла"
msgstr[2] "%d файлов"

#~ msgid "Old"
#~ msgstr "Старое"
"""
PO_PAIRS = [
    ("Open", "Открыть"),
    ("Two\nlines", "Две строки"),
    ("%d file", "%d файл"),
    ("%d files", "%d файла"),
    ("%d files", "%d файлов"),
]


ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".zst":
        data = pytest.importorskip(ZSTD).compress(data)
    path.write_bytes(data)
    return path


def read(*names: Path | str, languages: tuple[str, str] = ("", "")) -> list[Pair]:
    return list(read_corpus(Corpus(*map(str, names)), *languages))


def problem(*names: Path | str, languages: tuple[str, str] = ("", "")) -> str:
    with pytest.raises(CorpusError) as caught:
        read(*names, languages=languages)
    message = str(caught.value)
    assert "\n" not in message
    return message


packed = pytest.mark.parametrize("packing", ["", ".gz", ".zst"])


class TestText:
    @packed
    def test_two_files_face_each_other_line_by_line(self, tmp_path: Path, packing: str) -> None:
        source = write(tmp_path / f"a.en{packing}", "".join(f"{pair.source}\n" for pair in PAIRS))
        target = write(tmp_path / f"a.de{packing}", "".join(f"{pair.target}\r\n" for pair in PAIRS))
        assert read(source, target) == PAIRS

    def test_only_line_ends_and_the_first_mark_are_taken_off(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.txt", "\ufeff one \r\n\ufefftwo\x85\r\n\rthree\u2029\t\nlast\r")
        assert list(read_lines(path)) == [" one ", "\ufefftwo\x85", "\rthree\u2029\t", "last\r"]

    @settings(deadline=None, max_examples=60)
    @given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\ufeff")), min_size=1))
    def test_any_text_survives(self, tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
        path = write(tmp_path_factory.mktemp("any") / "a.txt", "".join(f"{line}\n" for line in lines))
        assert list(read_lines(path)) == lines

    @packed
    def test_many_lines_cross_every_buffer(self, tmp_path: Path, packing: str) -> None:
        lines = [f"{number} " + "wörd " * (number % 97) for number in range(20_000)]
        assert list(read_lines(write(tmp_path / f"a.txt{packing}", "\n".join(lines)))) == lines

    def test_zst_frames_one_after_another_are_one_file(self, tmp_path: Path) -> None:
        zstd = pytest.importorskip(ZSTD)
        path = tmp_path / "a.zst"
        path.write_bytes(zstd.compress(b"one\ntw") + zstd.compress(b"o\nthree\n"))
        assert list(read_lines(path)) == ["one", "two", "three"]


class TestOneFile:
    @packed
    def test_tsv_takes_the_first_two_columns(self, tmp_path: Path, packing: str) -> None:
        rows = "".join(f"{pair.source}\t{pair.target}\tCC-BY\tmore\n" for pair in PAIRS)
        assert read(write(tmp_path / f"a.tsv{packing}", rows)) == PAIRS

    def test_an_empty_row_is_data(self, tmp_path: Path) -> None:
        assert read(write(tmp_path / "a.tsv", 'a\tb\n\n"c"\t\n')) == [("a", "b"), ("", ""), ('"c"', "")]
        assert read(write(tmp_path / "a.jsonl", '{"source":"a","target":"b"}\n\n')) == [("a", "b"), ("", "")]

    @packed
    @pytest.mark.parametrize(
        "record",
        [
            lambda pair: {"source": pair.source, "target": pair.target, "en": 3},
            lambda pair: {"id": 7, "en": pair.source, "de": pair.target or None},
            lambda pair: {"EN_us": pair.source, "de-CH": pair.target},
            lambda pair: {"translation": {"de": pair.target, "en": pair.source, "fr": ""}},
        ],
        ids=["source-target", "languages", "regions", "translation"],
    )
    def test_json_lines(self, tmp_path: Path, packing: str, record: Callable[[Pair], dict[str, object]]) -> None:
        text = "".join(json.dumps(record(pair)) + "\n" for pair in PAIRS)
        languages = ("", "") if "source" in record(PAIRS[0]) else ("en", "de")
        assert read(write(tmp_path / f"a.jsonl{packing}", text), languages=languages) == PAIRS

    @packed
    def test_tmx(self, tmp_path: Path, packing: str) -> None:
        path = write(tmp_path / f"a.TMX{packing}", TMX)
        assert read(path, languages=("en", "de")) == TMX_PAIRS
        assert read(path, languages=("FR", "En-us")) == [("Ici", "Only French here")]

    def test_tmx_says_its_own_encoding(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.tmx", TMX.replace("UTF-8", "UTF-16").encode("utf-16"))
        assert read(path, languages=("en", "de")) == TMX_PAIRS

    @packed
    def test_po(self, tmp_path: Path, packing: str) -> None:
        pytest.importorskip("polib")
        path = write(tmp_path / f"ru.po{packing}", PO)
        assert read(path) == PO_PAIRS
        assert read(path, languages=("en", "ru")) == PO_PAIRS
        assert read(path, languages=("ru", "en")) == [(target, source) for source, target in PO_PAIRS]

    def test_po_with_one_plural_form_gives_it_to_both(self, tmp_path: Path) -> None:
        pytest.importorskip("polib")
        path = write(tmp_path / "ja.po", 'msgid "a file"\nmsgid_plural "files"\nmsgstr[0] "ファイル\u2028"\n')
        assert read(path) == [("a file", "ファイル\u2028"), ("files", "ファイル\u2028")]

    @pytest.mark.parametrize("nested", [False, True])
    def test_parquet(self, tmp_path: Path, nested: bool) -> None:
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        rows = [{"de": pair.target, "en": pair.source or None} for pair in PAIRS] * 3000
        columns = {"translation": rows} if nested else {key: [row[key] for row in rows] for key in ("en", "de")}
        path = tmp_path / "a.parquet"
        parquet.write_table(arrow.table({**columns, "id": range(len(rows))}), path, row_group_size=5000)
        assert read(path, languages=("en", "de")) == PAIRS * 3000
        if not nested:
            has = f'{path}:1: no "source" and "target" here, but "en", "de", "id"'
            assert problem(path) == f"{has}; name the languages with --from and --to"


class TestPhrasebook:
    def test_its_parts_have_names(self) -> None:
        for name, part in (("phrasebook", "train"), ("phrasebook:valid", "valid"), ("phrasebook:test", "test")):
            pairs = [(phrase.source, phrase.target) for phrase in read_phrases(part)]
            assert read(name) == pairs
            text = "".join(f"{source}\t{target}\n" for source, target in pairs)
            assert content_hash(Corpus(name)) == hashlib.sha256(text.encode()).hexdigest()

    def test_a_mistyped_part(self) -> None:
        message = 'phrasebook:tets: phrasebook has no such part; did you mean "phrasebook:test"?'
        assert problem("phrasebook:tets") == message
        assert problem("phrasebook", "a.de") == "phrasebook: the phrasebook holds both sides; give it without --target"


class TestErrors:
    def test_files_of_different_length(self, tmp_path: Path) -> None:
        short, long = write(tmp_path / "a.de", "1\n2\n3\n"), write(tmp_path / "a.en", "1\n2\n3\n4\n5")
        told = f"{short}:3: ends here with 3 lines, but {long} has 5; the two must match line by line"
        assert problem(long, short) == told
        assert problem(short, long) == told

    def test_text_that_is_not_utf8(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.tsv", b"a\tb\nca\xe9f\tc\n")
        byte = "byte 3 of the line is 0xe9"
        assert problem(path) == f"{path}:2: not UTF-8 ({byte}); convert the file, e.g. iconv -f latin1 -t utf-8"
        wide = write(tmp_path / "b.tsv", "a\tb\n".encode("utf-16"))
        assert problem(wide) == f"{wide}:1: UTF-16, not UTF-8; convert it, e.g. iconv -f utf-16 -t utf-8"

    @pytest.mark.parametrize("name", ["a.tsv", "a.jsonl", "a.tmx", "a.po", "a.parquet", "a.tsv.gz", "a.txt"])
    def test_empty_file(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).touch()
        assert problem(tmp_path / name) == f"{tmp_path / name}: the file is empty"

    def test_packed_nothing(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.tsv.gz", "")
        assert problem(path) == f"{path}: the file is empty"

    def test_row_without_a_tab(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.tsv", "a\tb\nc d\n")
        assert problem(path) == f"{path}:2: no tab in this row; a row is source, tab, target"

    def test_json(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jsonl"
        for line, languages, told in (
            ('{"source": "a"', ("", ""), "broken JSON (Expecting ',' delimiter, column 15)"),
            ("[" * 100_000, ("", ""), "broken JSON (nested too deeply)"),
            ('["a", "b"]', ("", ""), "not a JSON object; a line is an object that holds both sides"),
            (
                '{"english": "a", "german": "b"}',
                ("en", "de"),
                'neither "en" and "de" nor "source" and "target" here, but "english", "german"',
            ),
            (
                '{"translation": {"en": "a", "de": "b"}}',
                ("", ""),
                'no "source" and "target" here, but "en", "de"; name the languages with --from and --to',
            ),
            ('{"source": "a", "target": 3}', ("", ""), 'the value of "target" is not a string'),
            (
                '{"source": "\\ud800", "target": "b"}',
                ("", ""),
                '"source" holds half a surrogate pair, which is not a character',
            ),
        ):
            write(path, '{"source": "a", "target": "b", "en": "a", "de": "b"}\n' + line)
            assert problem(path, languages=languages) == f"{path}:2: {told}"

    def test_tmx(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.tmx", TMX)
        has = "EN-US, de-DE, fr, en-us, DE"
        assert problem(path, languages=("en", "it")) == f'{path}: no translation unit with "en" and "it"; it has {has}'
        assert problem(path) == f"{path}: name the languages to read with --from and --to; it has EN-US, de-DE"
        write(path, TMX.replace("</tuv></tu>", "</tuv>", 1))
        assert problem(path, languages=("en", "de")) == f"{path}:10: broken XML (mismatched tag)"
        write(path, "<tmx><body/></tmx>")
        assert (
            problem(path, languages=("en", "de")) == f"{path}: no translation unit in this file; check that it is TMX"
        )
        write(path, '<?xml version="1.0" encoding="klingon"?><tmx/>')
        told = f"{path}: XML in an encoding that cannot be read (unknown encoding: klingon); convert it to UTF-8"
        assert problem(path, languages=("en", "de")) == told

    def test_po(self, tmp_path: Path) -> None:
        pytest.importorskip("polib")
        path = write(tmp_path / "a.po", PO)
        assert (
            problem(path, languages=("en", "de"))
            == f'{path}: translated into "ru", not into "de"; correct --from and --to'
        )
        write(path, 'msgid "a"\nmsgstr "b"\nnonsense here\n')
        assert problem(path) == f"{path}:3: broken PO syntax"
        write(path, 'msgid "a"\nmsgstr "b"c"\n')
        assert problem(path) == f"{path}:2: broken PO syntax (unescaped double quote found)"
        for line, end in ((5, 'msgstr "hel'), (4, ""), (6, 'msgstr ""\n"hello '), (5, r'msgstr "he\"')):
            write(path, f'msgid "a"\nmsgstr "b"\n\nmsgid "c"\n{end}')
            assert problem(path) == f"{path}:{line}: ends within an entry; the file may be cut off"
        write(path, 'msgid "a"\nmsgstr ""\n')
        assert problem(path) == f"{path}: no finished translation among its 1 entries; fuzzy entries are not used"

    def test_parquet(self, tmp_path: Path) -> None:
        pytest.importorskip("pyarrow")
        path = write(tmp_path / "a.parquet", "PAR1 but not for long")
        assert problem(path).startswith(f"{path}: not a Parquet file, or a damaged one (")
        path = write(tmp_path / "a.parquet.gz", "x")
        assert problem(path) == f"{path}: Parquet is compressed inside already; decompress the .gz file first"

    @pytest.mark.parametrize("packing", [".gz", ".zst"])
    def test_damaged_packing(self, tmp_path: Path, packing: str) -> None:
        path = write(tmp_path / f"a.tsv{packing}", "".join(f"{number}\t{number % 7919}\n" for number in range(60_000)))
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        message = problem(path)
        assert message.startswith(f"{path}:")
        assert message.endswith(f": damaged {packing} file (it ends too early); fetch or pack it again")
        assert 1000 < int(message.removeprefix(f"{path}:").partition(":")[0]) < 60_000
        path.write_bytes(b"plain\ttext\n")
        reasons = {".gz": "not gzip data", ".zst": "Unable to decompress Zstandard data: Unknown frame descriptor"}
        assert problem(path) == f"{path}:1: damaged {packing} file ({reasons[packing]}); fetch or pack it again"

    def test_damaged_packing_of_xml(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.tmx.gz", TMX)
        path.write_bytes(path.read_bytes()[:-20])
        told = f"{path}: damaged .gz file (it ends too early); fetch or pack it again"
        assert problem(path, languages=("en", "de")) == told

    def test_missing_file_and_its_nearest_neighbour(self, tmp_path: Path) -> None:
        write(tmp_path / "train.en.gz", "a\n")
        missing = tmp_path / "train.en"
        assert problem(missing, missing) == f'{missing}: no such file; did you mean "train.en.gz"?'
        assert problem(missing) == f'{missing}: no such file; did you mean "train.en.gz"?'
        lost = tmp_path / "nowhere" / "a.tsv"
        assert problem(lost) == f"{lost}: no such file (there is no folder {lost.parent})"

    def test_folder_instead_of_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "a.tsv").mkdir()
        assert problem(tmp_path / "a.tsv") == f"{tmp_path / 'a.tsv'}: a folder, not a file; name a file"

    def test_no_permission(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = write(tmp_path / "a.tsv", "a\tb\n")

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(builtins, "open", refuse)  # a test may run as root, whom no mode bits stop
        assert problem(path) == f"{path}: no permission to read it"

    def test_one_side_only(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.en", "a\n")
        kinds = ".tsv, .jsonl, .tmx, .po, .parquet"
        assert (
            problem(path) == f"{path}: holds one side only; give the other as --target, or one file with both ({kinds})"
        )
        assert problem("") == "--source: no file given; name one"

    def test_two_sides_twice(self, tmp_path: Path) -> None:
        told = "a file of this kind holds both sides; give it as --source, without --target"
        assert problem(tmp_path / "a.tsv", tmp_path / "b.de") == f"{tmp_path / 'a.tsv'}: {told}"
        assert problem(tmp_path / "a.en", tmp_path / "b.tmx.gz") == f"{tmp_path / 'b.tmx.gz'}: {told}"

    @pytest.mark.parametrize(
        ("name", "module", "need"),
        [
            ("a.tsv.zst", ZSTD, "reading .zst"),
            ("a.po", "polib", "reading .po"),
            ("a.parquet", "pyarrow", "reading Parquet"),
        ],
    )
    def test_missing_extra(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str, need: str
    ) -> None:
        monkeypatch.setitem(sys.modules, module, None)
        (tmp_path / name).write_text("x")
        assert problem(tmp_path / name) == f'{tmp_path / name}: {need} needs {module}: pip install "regard[formats]"'


@pytest.mark.parametrize(
    ("asked", "codes", "found"),
    [
        ("en", ["EN-US", "de"], "EN-US"),
        ("en", ["en-GB", "EN"], "EN"),
        ("en-us", ["en-GB", "en_US"], "en_US"),
        ("fi", ["fil", "fi-FI"], "fi-FI"),
        ("en-US", ["en"], None),
        ("", ["en", ""], None),
    ],
)
def test_find_language(asked: str, codes: list[str], found: str | None) -> None:
    assert find_language(asked, codes) == found


def test_content_hash_is_the_hash_of_the_bytes(tmp_path: Path) -> None:
    source, target = write(tmp_path / "a.en.gz", "a\n"), write(tmp_path / "a.de", "b\n")
    both = hashlib.sha256(source.read_bytes() + target.read_bytes()).hexdigest()
    assert content_hash(Corpus(str(source), str(target))) == both
    # printf 'b\n' | sha256sum
    single = "0263829989b6fd954f72baaf2fc64bc2e2f01d692d4de72986ea808f6e99813f"
    assert content_hash(Corpus(str(target))) == single
    with pytest.raises(CorpusError, match="no such file"):
        content_hash(Corpus(str(tmp_path / "b.de")))


@pytest.mark.parametrize("kind", ["text", "tsv", "tsv.gz", "jsonl", "tmx"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, kind: str) -> None:
    count = 200_000 if kind in ("text", "tsv") else 10_000
    line = "the quick brown fox jumps over the lazy dog"
    if kind == "text":
        names = [write(tmp_path / f"a.{side}", f"{line}\n" * count) for side in ("en", "de")]
    else:
        unit = '<tu><tuv xml:lang="en"><seg>a</seg></tuv><tuv xml:lang="de"><seg>b</seg></tuv></tu>\n'
        record = json.dumps({"source": line, "target": line}) + "\n"
        row = {"tsv": f"{line}\t{line}\n", "jsonl": record, "tmx": unit}[kind.partition(".")[0]]
        content = f"<tmx><body>{row * count}</body></tmx>" if kind == "tmx" else row * count
        names = [write(tmp_path / f"a.{kind}", content)]
        del content
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_corpus(Corpus(*map(str, names)), "en", "de")) == count
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_real_corpora() -> None:
    if not SHARED.is_dir():
        pytest.skip("the shared data is not on this machine")
    # Counts as the collection's own table gives them.
    assert sum(1 for _ in read_corpus(Corpus(str(SHARED / "tatoeba" / "en-es.tsv.gz")))) == 118_964
    captions = read(SHARED / "multi30k" / "train.en", SHARED / "multi30k" / "train.de")
    assert len(captions) == 29_000
    assert captions[0].target == "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche."
