"""A policy behind HTTP and WebSocket: requests in batches, sessions, limits.

Imports the store, and nothing that trains.
"""
