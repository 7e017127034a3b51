"""From command-line arguments or Python keywords to a checked `Config`, in one way for both.

May import algorithms and environments; knows nothing of running.
"""
