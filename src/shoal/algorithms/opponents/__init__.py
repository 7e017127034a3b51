"""Opponents that do not learn: random play, a finished run, past snapshots of another team.

Import only what algorithms may import.
"""
