"""Every state of a row, in a table beside its own.

decoding    how its changes are reduced
lake        how they are written
"""
