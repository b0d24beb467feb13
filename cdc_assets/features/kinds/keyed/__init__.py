"""One row per key: the last change of a key counts.

decoding    how its changes are reduced
lake        how they are written
"""
