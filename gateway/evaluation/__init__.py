"""Asks a server about facts hidden in long texts, and turns the answers into curves and thresholds.

The client's side only: it knows HTTP, no engine and no gateway's insides but routes and policies.
"""
