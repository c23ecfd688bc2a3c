"""The command line as a user meets it: help, and one clear line for whatever is wrong."""

import json
import shlex
import subprocess
import sys

import pytest

from regard.cli import commands, find_command, main
from regard.cli.data import ACTIONS
from regard.registry import ARCHITECTURES, TASKS

SCREEN = 50
"""Lines that a help text may have, at 100 columns."""
HELP = [
    *([name] for name in commands()),
    *(["data", action] for action in ACTIONS),
    *(["train", "--task", task] for task in TASKS),
]


def test_help_names_every_command_and_fits_a_screen(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in commands())
    assert len(text.splitlines()) <= SCREEN


@pytest.mark.parametrize("words", HELP, ids=" ".join)
def test_every_help_fits_a_screen_and_has_two_examples(words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as left:
        main([*words, "--help"])
    assert left.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= SCREEN
    assert max(map(len, lines)) <= 120
    shown = " ".join(words[: 2 if words[0] == "data" else 1])
    assert sum(line.startswith("  ") and f"regard {shown}" in line for line in lines) >= 2


@pytest.mark.parametrize("name", commands())
def test_examples_can_be_parsed(name):
    command = find_command(name)
    for example in command.examples:
        words = shlex.split(example.rpartition("| ")[2].partition(" > ")[0], comments=True)
        assert words[:2] == ["regard", name]
        command.parser(f"regard {name}", words[2:]).parse(words[2:])


def test_help_without_torch():
    code = "import sys; from regard.cli import main; main(['--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_train_help_of_a_task_shows_its_settings(capsys):
    for words, shown, hidden in (
        (["train"], ["--source", "regard settings lists every setting"], ["tag.column"]),
        (["train", "--task", "tag"], ["tag.column = 0", "--valid FILE"], ["--source", "--from", "classify."]),
        (["train", "--task=classify"], ["classify.max_tokens = 500"], ["--valid-source"]),
    ):
        with pytest.raises(SystemExit):
            main([*words, "--help"])
        options = capsys.readouterr().out.partition("positional arguments")[2]
        assert all(text in options for text in shown)
        assert not any(text in options for text in hidden)


class TestSettings:
    def test_sections(self, capsys):
        assert main(["settings"]) == 0
        rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
        assert rows[0] == ["section", "settings", "meaning"]
        assert {"data", "train", "search", "tag"} <= {row[0] for row in rows}

    def test_a_section_a_task_and_an_architecture(self, capsys):
        for name, expected in (
            ("train", "train.warmup_steps\t400\tinteger"),
            ("search", "search.beam_size\t5\tinteger"),
            ("train", 'train.optimizer\t"adam"\tadam | muon | adagrad\t'),
            ("classify", 'model.arch\t"han"'),
            ("bahdanau", 'model.cell\t"gru"\t'),
        ):
            assert main(["settings", name]) == 0
            assert expected in capsys.readouterr().out

    def test_json_has_every_field(self, capsys):
        assert main(["settings", "train", "--json"]) == 0
        [seed, *_] = json.loads(capsys.readouterr().out)["train"]
        assert (seed["name"], seed["default"]) == ("seed", "1")
        assert seed["type"].startswith("integer")
        assert seed["help"]

    def test_an_unknown_section(self, capsys):
        assert main(["settings", "trian"]) == 2
        assert 'there is no section "trian"; did you mean "train"?' in capsys.readouterr().err

    def test_without_torch(self):
        code = "import sys; from regard.cli import main; main(['settings', 'train']); sys.exit('torch' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_version_and_module_door():
    from regard import __version__

    done = subprocess.run([sys.executable, "-m", "regard", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"regard {__version__}\n"


def write(folder, name, *lines):
    path = folder / name
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return str(path)


BAD = {
    "unknown command": (["trian"], 'there is no command "trian"; did you mean "train"?'),
    "unknown option": (["train", "--sorce", "a"], 'unknown option --sorce; did you mean "--source"?'),
    "not a number": (["train", "--seed", "x"], "argument --seed: invalid int value: 'x'"),
    "nothing to train on": (["train"], "nothing to train on: give --source and --target, or a recipe"),
    "missing file": (["train", "--source", "{d}/trian.en", "--target", "{d}/train.de"], 'did you mean "train.en"?'),
    "uneven files": (["train", "--source", "{d}/train.en", "--target", "{d}/short.de"], "ends here with 2 lines"),
    "a folder": (["train", "--source", "{d}", "--target", "{d}/train.de"], "a folder, not a file"),
    "empty file": (["train", "--source", "{d}/empty.en", "--target", "{d}/empty.en"], "the file is empty"),
    "too few": (["train", "--source", "{d}/short.de", "--target", "{d}/short.de"], "2 pairs are too few to train on"),
    "misspelt setting": (["train", "{d}/recipe.toml", "--set", "train.sed=1"], 'did you mean "train.seed"?'),
    "missing recipe": (["train", "{d}/none.toml"], "none.toml: cannot read the recipe"),
    "recipe without data": (["train", "{d}/recipe.toml"], "nothing to train on"),
    "unknown arch": (["train", "--arch", "bahdanu", "--source", "{d}/train.en"], 'did you mean "bahdanau"?'),
    "unpaired": (["train", "--source", "a", "--target", "b", "--target", "c"], "needs one target file"),
    "vocabulary too large": (
        ["train", "--source", "{d}/train.en", "--target", "{d}/train.de", "--set", "tokenizer.vocab_size=9000"],
        "tokenizer.vocab_size",
    ),
    "empty validation": (
        ["train", "--source", "{d}/train.en", "--target", "{d}/train.de", "--valid-source", "{d}/empty.en",
         "--valid-target", "{d}/empty.en"],
        "the file is empty",
    ),
    "existing folder": (
        ["train", "--source", "{d}/train.en", "--target", "{d}/train.de", "--out", "{d}/full",
         "--set", "tokenizer.vocab_size=300"],
        "exists already",
    ),
    "no such run": (["translate", "{d}/none"], "there is no such run folder"),
    "not a run": (["info", "{d}/full"], "not a run folder"),
    "info of nothing": (["info"], "info needs either a run folder or --arch NAME"),
    "roofline of a run": (["info", "{d}/full", "--roofline"], "--roofline needs --arch NAME"),
    "page of what": (["info", "--arch", "hran", "--out", "{d}/a.html"], "add --roofline"),
    "page of no kind": (["info", "--arch", "hran", "--roofline", "--out", "{d}/a.pdf"], "must end in .html or .json"),
    "no tokens": (["info", "--arch", "hran", "--roofline", "--length", "0"], "--length 0: must be between 1 and 2,048"),
    "too many tokens": (["info", "--arch", "hran", "--roofline", "--length", "99999999999"], "must be between 1 and"),
    "too many texts": (["info", "--arch", "hran", "--roofline", "--batch", "99999999999"], "between 1 and 400,000"),
    "length of what": (["info", "--arch", "hran", "--length", "6"], "add --roofline"),
    "resume of nothing": (["resume", "{d}/none"], "there is no such run folder"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gives_one_line_and_leaves_nothing(case, tmp_path, capsys, monkeypatch):
    words = ["the", "a", "one", "my", "your", "small", "big", "red", "old", "new", "cat", "dog", "house", "tree"]
    lines = [f"{a} {b} sees {c} {d}" for a in words[:5] for b in words[5:8] for c in words[:3] for d in words[10:]]
    write(tmp_path, "train.en", *lines)
    write(tmp_path, "train.de", *lines)
    write(tmp_path, "short.de", *lines[:2])
    write(tmp_path, "empty.en")
    write(tmp_path, "recipe.toml", "[train]", "seed = 1")
    (tmp_path / "full").mkdir()
    write(tmp_path, "full/notes.txt", "mine")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    arguments, message = BAD[case]
    if arguments[0] == "translate":
        arguments = [*arguments, str(tmp_path / "train.en")]  # not standard input
    code = main([word.format(d=tmp_path) for word in arguments])
    said = capsys.readouterr()
    assert code == 2
    error = said.err.strip().splitlines()
    assert message in error[-1]
    assert error[-1].startswith("regard: ")
    assert "Traceback" not in said.err
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_architecture_is_described(arch, capsys):
    assert main(["info", "--arch", arch, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["parameters"] > 0
    assert all(cost > 0 for cost in facts["flops"].values())
    assert facts["flops"]


def test_info_arch_prints_layers_and_json(capsys):
    assert main(["info", "--arch", "transformer-tiny", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["parameters"] == sum(layer["parameters"] for layer in facts["layers"])
    assert main(["info", "--arch", "transformer-tiny"]) == 0
    assert f"{facts['parameters']:,}" in capsys.readouterr().out


def test_info_roofline_writes_what_it_prints(capsys, tmp_path):
    out = tmp_path / "cost.json"
    assert main(["info", "--arch", "text-encoder", "--roofline", "--length", "6", "--json", "--out", str(out)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == json.loads(out.read_text())
    assert [phase["name"] for phase in facts["phases"]] == [
        "training step, batch 32",
        "prediction, batch 1",
        "prediction, batch 32",
    ]
    assert all(phase["prediction"]["bound"] in ("compute", "memory", "launch") for phase in facts["phases"])
