"""Nets: layers, torsos, heads, mixers, and their inputs.

Pure functions of parameters and arrays. Parameter sharing is an axis of every layer.
"""
