"""The documentation says what the code does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from regard.cli import commands
from regard.cli.settings import settings_page
from regard.config import Recipe
from tests.processes import run

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def test_the_settings_page_is_current():
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == settings_page(), "run `make docs`"


def test_the_settings_page_tells_choices_presets_and_tasks():
    page = settings_page()
    assert '| `schedule` | `"inverse-sqrt"` | `inverse-sqrt`, `cosine`, `constant` |' in page
    row = next(line for line in page.splitlines() if line.startswith("| `transformer-small` |"))
    assert {"`3`", "`256`", "`4`", "`1024`", "`0.1`"} <= set(row.split(" | "))
    assert f"A recipe without it has `{Recipe().model.arch}`" in " ".join(page.split())
    assert "| `classify` | label documents, pictures or series | " in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_the_pages_exist(page):
    for name in re.findall(r"^\s*(?:\$ )?(?:\.venv/bin/)?regard ([a-z]\w*)", page.read_text(encoding="utf-8"), re.M):
        assert name in commands(), f"{page.name} shows `regard {name}`"


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_architecture_page_names_files_that_exist():
    shown = re.sub(r"```python.*?```", "", ARCHITECTURE, flags=re.DOTALL)
    for name in set(re.findall(r"(?<![\w/])(?:\w+/)+\w+\.py\b", shown)):
        assert (ROOT / "src" / "regard" / name).is_file() or (ROOT / name).is_file(), f"{name} does not exist"


@pytest.fixture(scope="module")
def plugins(tmp_path_factory):
    """The plugins of the architecture page, as files in a folder."""
    folder = tmp_path_factory.mktemp("plugins")
    for code, name in re.findall(r'```python\n("""(\w+\.py): .*?)```', ARCHITECTURE, re.DOTALL):
        (folder / name).write_text(code, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("plugin", "arguments", "printed"),
    [
        ("bag.py", ["info", "--arch", "bag"], "Dropout on the document vector."),
        ("paraphrase.py", ["train", "--task", "paraphrase", "--help"], "usage: regard train"),
        ("paraphrase.py", ["paraphrase", "--help"], "Paraphrase sentences."),
        ("properties.py", ["translate", "--help"], "usage: regard translate"),
        ("npz.py", ["export", "--help"], ",npz}"),
        ("npz.py", ["import", "--help"], ",npz}"),
    ],
)
def test_the_plugins_of_the_architecture_page_work(plugins, plugin, arguments, printed):
    done = run("--plugin", plugin, *arguments, folder=plugins)
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout


def test_the_document_format_of_the_architecture_page_works(plugins):
    code = """
import properties
from types import SimpleNamespace
from regard.documents import parse
document = parse("a.properties", "# Menu\\nopen = Open it\\n\\nclose=Close\\n")
print(document.rebuild([SimpleNamespace(text=text.upper(), alignment=None) for text in document.texts]), end="")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=plugins, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("# Menu\nopen = OPEN IT\n\nclose=CLOSE\n", "")
