"""The documentation says what the code does."""

import re
from pathlib import Path

import pytest

from regard.cli import commands
from regard.cli.settings import settings_page
from regard.config import Recipe

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
    assert "| `classify` | label documents | " in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_the_pages_exist(page):
    for name in re.findall(r"^\s*(?:\$ )?(?:\.venv/bin/)?regard ([a-z]\w*)", page.read_text(encoding="utf-8"), re.M):
        assert name in commands(), f"{page.name} shows `regard {name}`"
