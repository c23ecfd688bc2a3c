"""Data: reading, cleaning, splitting, storing and batching corpora. No model is used here."""
