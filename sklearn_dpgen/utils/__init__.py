"""Validation, random streams and devices."""
