"""What Regard offers by name, one line each, as strings; it imports nothing, so that every command can read it."""

from __future__ import annotations

BUILTIN = {
    "phrasebook": "phrasebook.jsonl.bz2",
    "smalltalk": "smalltalk.jsonl.bz2",
}
"""Built-in corpora: the name to give as --source, and the packaged file in regard/data (written by tools/)."""
