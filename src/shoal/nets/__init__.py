"""Nets: layers, torsos, heads, mixers, and what each part is shown.

Pure functions of parameters and arrays; parameter sharing is an axis of every layer.
"""
