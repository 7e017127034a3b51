"""The command line, a module per command.

May import everything; nothing imports it.
"""
