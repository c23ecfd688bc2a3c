"""`python -m tools.phrasebook`: writes the packaged phrasebook."""

from tools.packaged import write_packaged
from tools.phrasebook import packaged_rows

write_packaged("phrasebook", packaged_rows())
