"""Files of a run, written and read back: folder, checkpoints, policies, metrics.

May import the engine; prints nothing.
"""
