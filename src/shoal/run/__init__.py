"""One run from its config to its summary.

May touch everything above; knows nothing of several runs.
"""
