"""What the laws are tried on."""

import pytest

from regard.config import Model
from regard.models.base import Seq2Seq
from tests.toys import Sentences, build, sentences


@pytest.fixture
def model(settings: Model) -> Seq2Seq:
    """The architecture of a case, in small."""
    return build(settings)


@pytest.fixture
def source() -> Sentences:
    """Seven tokens, four, one."""
    return sentences([7, 4, 1])
