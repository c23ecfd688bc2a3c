"""Search over `step`. Nothing here knows an architecture: a step function, a state and a memory come in.

greedy.py      one path for each sentence: the likeliest token, or whatever a `pick` chooses
sample.py      the pick that draws: temperature, top-k, top-p, epsilon
beam.py        the W best hypotheses
diverse.py     the same in groups that keep out of each other's way
stream.py      one path of one sentence, token by token while it is written
force.py       a given target, and what it costs
ensemble.py    several models as one
constraints.py what may not be written: shared by all of them
coverage.py    a penalty for source words that nobody looked at
searchtree.py  what a beam search did, as data
"""
