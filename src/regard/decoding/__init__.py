"""Search over `step`. Nothing here knows an architecture: a step function, a state and a memory come in."""
