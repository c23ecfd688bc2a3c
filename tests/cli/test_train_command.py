"""What `regard train` makes of its options."""

from __future__ import annotations

import pytest

from regard.cli.train import guess_languages


@pytest.mark.parametrize(
    ("source", "target", "languages"),
    [
        ("train.en", "train.de.gz", {"source_language": "en", "target_language": "de"}),
        ("train.src", "train.tgt", {}),
        ("a.tok", "b.ref", {}),
        ("train.src", "train.it", {"target_language": "it"}),
        ("train.en", "", {}),
    ],
)
def test_languages_are_guessed_from_codes_of_languages_only(
    source: str, target: str, languages: dict[str, str]
) -> None:
    data = {"train": [{"source": source, "target": target}]}
    guess_languages(data)
    assert {key: value for key, value in data.items() if key != "train"} == languages
