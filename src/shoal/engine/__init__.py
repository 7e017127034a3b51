"""The one training loop, compiled or hosted, and evaluation.

May touch algorithms, environments and the config; writes no files.
"""
