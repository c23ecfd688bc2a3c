"""Translate."""
