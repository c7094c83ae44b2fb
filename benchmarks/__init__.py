"""Measurements of speed: ratios between interleaved trainings. Not part of the tests."""
