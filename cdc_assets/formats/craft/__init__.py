"""TiCDC's Craft: binary messages of several row events, laid out in columns; old architecture only.

messages   batches of messages -> what they speak of, and changes, a column of all rows at a time
frame      variable-length integers, many at once: headers, dictionary, and where bodies lie
"""
