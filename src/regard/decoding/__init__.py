"""Search for the output of an encoder-decoder. A search gets a step function, a state and a memory, never a model.

hypothesis.py       what all searches share: hypotheses, special tokens, states as trees of tensors, the best few scores
greedy.py           one path per hypothesis, token by token: greedy search, sampling, streaming
beam.py             beam search, and a record of it: the search tree
diverse.py          diverse beam search: groups with different outputs
forced_decoding.py  the score of a given target
constraints.py      changes of the next token's log-probabilities, used by all searches
penalties.py        length and coverage penalties
ensemble.py         several models that decode as one
"""
