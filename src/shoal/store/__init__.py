"""What a run leaves on disk, and how it is read back: folder, checkpoints, policies, metrics.

May touch the engine; prints nothing.
"""
