"""The mathematics of learning: returns, memories, exploration, optimisers, statistics.

Pure functions of arrays: no environments, no files.
"""
