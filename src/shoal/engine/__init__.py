"""The training loop, compiled or hosted, and evaluation.

May import algorithms, environments and the config; writes no files.
"""
