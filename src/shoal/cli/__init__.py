"""The command line: a module per command.

May touch everything; nothing imports it.
"""
