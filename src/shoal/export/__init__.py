"""Policies for other frameworks: a team's `act` as a plain program, and formats that write it.

Imports only what acts and plays; the store writes what is made here.
"""
