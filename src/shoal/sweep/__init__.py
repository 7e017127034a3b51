"""Many runs: seeds, processes, one program for several seeds, campaigns.

May touch a run; draws no figures.
"""
