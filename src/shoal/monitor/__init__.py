"""Everything that watches a run: callbacks, metrics, console, trackers, films, curves.

May touch the store; decides nothing about training.
"""
