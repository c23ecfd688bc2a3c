"""Programs for working on Regard; they are not installed with it."""
