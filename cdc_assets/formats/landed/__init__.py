"""Messages of one table as they were landed, in whatever protocol they are written: the splits of topics.

options   the protocol, and its options
decode    a split -> changes
frame     messages -> the bytes of a split, and back
"""
