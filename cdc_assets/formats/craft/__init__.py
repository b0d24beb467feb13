"""TiCDC's Craft: binary messages of several row events, laid out in columns; old architecture only.

messages   batches of messages -> what they speak of, and changes
frame      headers, dictionary, and where bodies lie
columns    the values of row events, a column of all rows at a time
varints    variable-length integers, many at once
"""
