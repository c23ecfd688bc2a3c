"""`python -m tools.shapes`: writes the packaged drawings."""

from tools.packaged import write_packaged
from tools.shapes import packaged_rows

write_packaged("shapes", packaged_rows())
