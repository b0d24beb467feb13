"""Canal-JSON as TiCDC writes it: a JSON record a row, in files and as messages.

decode         records of files or messages -> changes: which of them are refused, and values
file_records   files whose records are all alike -> records
row_records    rows whose `old` has the columns that changed -> records
messages       batches of messages -> what they speak of, and changes
ends           what rows as messages have at both ends
options        how a file of Canal-JSON was written
"""
