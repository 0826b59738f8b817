"""Confidence in answers: signals, calibration, thresholds, decisions and other ways to an answer."""
