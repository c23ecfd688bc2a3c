"""What the laws are tried on."""

import pytest

from regard.config import ModelSettings
from regard.models.base import Seq2Seq
from tests.toys import MARKER, Sentences, build, sentences


@pytest.fixture
def model(settings: ModelSettings) -> Seq2Seq:
    """The architecture of a case, in small."""
    return build(settings)


@pytest.fixture
def source() -> Sentences:
    """Seven tokens, four, one. The first two have several turns, if a token is read as the end of one."""
    made = sentences([7, 4, 1])
    made.ids_BS[0, [2, 4]] = made.ids_BS[1, 1] = MARKER
    return made
