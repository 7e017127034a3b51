"""The page of `shoal live`: run folders read as they grow, tables, curves and replays in a browser.

Reads what runs leave on disk, and calls the report; trains nothing itself.
"""
