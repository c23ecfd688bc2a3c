"""Marian folders that are not laid out as ours."""

from __future__ import annotations

import json
from pathlib import Path

from regard.export import export_run, import_model
from regard.text.tokenizer import SOS
from tests.export.runs import random_recipe, random_run


def test_each_side_starts_where_its_own_vocabulary_says(tmp_path: Path) -> None:
    """Where the target's start token has another id, the source loses nothing that has this id."""
    run = random_run(tmp_path / "run", random_recipe({"tie_embeddings": "none"}, tokenizer={"joint": False}))
    folder = export_run(run, "marian", tmp_path / "marian")
    table = json.loads((folder / "target_vocab.json").read_text(encoding="utf-8"))
    other = next(token for token, id in table.items() if id == 300)
    table |= {"<s>": 300, other: SOS}
    (folder / "target_vocab.json").write_text(json.dumps(table), encoding="utf-8")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"decoder_start_token_id": 300}), encoding="utf-8")
    back = import_model("marian", folder, tmp_path / "back")
    assert back.tokenizers[0].hash() == run.tokenizers[0].hash()
    assert sorted(back.tokenizers[1].tokens) == sorted(run.tokenizers[1].tokens)
    assert back.tokenizers[1].token(SOS) == "<s>"
