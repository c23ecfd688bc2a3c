"""Retrieve."""
