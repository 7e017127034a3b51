"""What many runs say: results, statistics, tables, figures, one HTML page.

Reads run folders; trains nothing.
"""
