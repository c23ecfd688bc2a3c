"""Tokenizers, and splitting of text into words and sentences."""
