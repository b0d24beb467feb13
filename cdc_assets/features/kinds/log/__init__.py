"""Every change of a table, in a table beside it.

decoding    how its changes are reduced
lake        how they are written
"""
