"""`python -m tools.smalltalk`: writes the packaged small talk."""

from tools.packaged import write_packaged
from tools.smalltalk import packaged_rows

write_packaged("smalltalk", packaged_rows())
