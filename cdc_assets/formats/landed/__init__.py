"""Messages of one table as they were landed, in whatever protocol they are written: the splits of topics.

options   the protocol, and its options
decode    the messages of a split -> changes
"""
