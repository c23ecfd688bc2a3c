"""Models of other programs: ours written in their formats, theirs read into run folders.

`support.py` says what can go where, without importing torch; each format has a file of its own.
"""
