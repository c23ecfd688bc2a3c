"""Attention, positions, cells and convolutions: functions and small modules that know nothing of tasks or files.

Shapes are written as suffixes, one letter an axis, for the whole package:

    B batch      S source length    T target length    U utterance      D model width    H heads
    K head width F inner width      V vocabulary       W beam width     N any rows
    L labels     P packed tokens    E embedding width  G gates of a cell

Masks are boolean and True where something is real.
"""
