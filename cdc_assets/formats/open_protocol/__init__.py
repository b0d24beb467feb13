"""TiCDC's Open Protocol: framed JSON, several row events a message, each column with its type and flags.

messages   batches of messages -> what they speak of, and changes
"""
