"""Games in plain Python: matches, the tables that play them, and their processes.

Nothing here imports JAX: worker processes start fast and stay small.
"""
