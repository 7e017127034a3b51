"""Many runs: seeds, processes, several seeds in one program, campaigns.

May import a run; draws no figures.
"""
