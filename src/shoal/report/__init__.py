"""Results of many runs: statistics, tables, figures, one HTML page.

Reads run folders; trains nothing.
"""
