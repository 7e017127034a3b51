"""Benchmark campaigns: several algorithms on several tasks with several seeds, and what may be said of the results.

`plan.py` says which runs there are, `results.py` reads what they left, `statistics.py` has the estimates, `tables.py`
their rows, `plots.py` the pictures, `report.py` the page, `command.py` what `shoal campaign` and `shoal report` do.
"""
