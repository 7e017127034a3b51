"""One run, from its config to its summary.

May import everything above; knows nothing of several runs.
"""
