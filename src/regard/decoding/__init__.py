"""Search for the output of an encoder-decoder. A search gets a step function, a state and a memory, never a model.

hypothesis.py       used by all searches: hypotheses, special tokens, states as trees of tensors, a fast top-k
greedy.py           greedy search, random sampling, and streaming of both
beam.py             beam search, and search trees, which record it
diverse.py          diverse beam search: groups with different outputs
forced_decoding.py  the score of a given target
constraints.py      constraints on the next token, used by all searches
penalties.py        length and coverage penalties
ensemble.py         several models that decode as one; shallow fusion with a language model
"""
