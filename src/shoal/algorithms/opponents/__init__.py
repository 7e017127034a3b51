"""Players that do not learn by themselves: random play, a finished run, past selves of another
team.

They may touch what algorithms may touch.
"""
