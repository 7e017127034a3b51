"""Games in plain Python: matches, the tables that play them, the processes those run in.

Nothing here imports JAX: worker processes start fast and stay small.
"""
