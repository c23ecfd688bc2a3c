"""The wheel works without the clone: it holds the demo's recipes, the built-in corpora and the parts of the pages."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGED = (
    "regard/py.typed",
    "regard/recipes/demo-translate.toml",
    "regard/recipes/demo-chat.toml",
    "regard/recipes/demo-lm.toml",
    "regard/recipes/demo-caption.toml",
    "regard/data/phrasebook.jsonl.bz2",
    "regard/data/smalltalk.jsonl.bz2",
    "regard/data/shapes.jsonl.bz2",
    "regard/pages/skeleton.html",
    "regard/pages/common/theme.css",
    "regard/server/page/main.js",
    "regard/tasks/translate/page/view.js",
)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The content of a freshly built wheel."""
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        pytest.skip("building the wheel needs uv")
    folder = tmp_path_factory.mktemp("wheel")
    command = [uv, "build", "--quiet", "--offline", "--wheel", "--out-dir", str(folder), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if "hatchling" in built.stderr and "cache" in built.stderr:
        pytest.skip("building the wheel offline needs hatchling in the cache of uv")
    assert built.returncode == 0, built.stderr
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.mark.parametrize("name", PACKAGED)
def test_the_wheel_holds(unpacked, name):
    assert (unpacked / name).is_file()


def test_the_wheel_holds_every_module(unpacked):
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert modules == {str(path.relative_to(unpacked)) for path in unpacked.rglob("*.py")}


def test_the_demo_starts_without_the_clone(unpacked, tmp_path):
    """Up to the first step of training: recipe, corpus and plan come from the wheel."""
    code = (
        "import regard.tasks.train as train\n"
        "from regard.cli import main\n"
        "def start(job, folder):\n"
        "    print(train.__file__, job.recipe.data.task, len(job.recipe.data.train))\n"
        "    raise InterruptedError\n"
        "train.start = start\n"
        "for what in ('translate', 'chat', 'lm', 'caption'):\n"
        "    try:\n"
        "        main(['demo', what])\n"
        "    except InterruptedError:\n"
        "        pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    tasks = ("translate", "chat", "language-model", "caption")
    assert lines == [[str(unpacked / "regard" / "tasks" / "train.py"), task, "1"] for task in tasks]
