"""Small run folders of every format so far. They must open for ever; see test_kept_runs.py."""
