"""Shoal's own games, compiled with the learner.

Imports `envs.game`, `render` and the records.
"""
