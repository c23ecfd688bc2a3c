"""Text: tokenizers, words and sentences. No model is used here."""
