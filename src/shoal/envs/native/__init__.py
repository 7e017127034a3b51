"""Our own games, compiled with the learner.

They may touch `envs.game`, `render` and the records.
"""
