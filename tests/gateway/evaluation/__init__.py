"""Tests of `ringway eval` and `ringway calibrate`."""
