"""Everything that watches a run: callbacks, metrics, console, trackers, videos, curves.

May import the store; decides nothing about training.
"""
