"""A table without key: how many equal rows enter or leave.

decoding    how its changes are reduced
lake        how they are written
"""
