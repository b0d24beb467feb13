"""Messages of one table as they were landed, in whatever protocol they are written: the splits of topics.

options   which protocol, and how it was told to write
decode    a split -> changes
frame     messages -> the bytes of a split, and back
"""
