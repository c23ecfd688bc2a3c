"""Text in: reading, cleaning, tokenizing and batching corpora. No model is known here."""
