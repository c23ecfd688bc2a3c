"""Layers that models are built of: attention, positional encoding, recurrent cells, dropout, pooling, CRF, hooks.

Names of tensors end in their shape, one letter per axis. The letters are the same in the whole package:

    B batch      S source length    T target length    U utterance      D model width    H heads
    K head width F inner width      V vocabulary       W beam width     N any rows
    L labels     P packed tokens    E embedding width  G gates of a cell

Masks are boolean: True for real tokens, False for padding.
"""
