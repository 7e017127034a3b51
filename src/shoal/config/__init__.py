"""From words or keyword arguments to a checked `Config`, one way for the command line and Python.

May touch algorithms and environments; knows nothing of running.
"""
