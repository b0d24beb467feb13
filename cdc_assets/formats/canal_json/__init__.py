"""Canal-JSON as TiCDC writes it: a JSON record a row, in files and as messages.

decode     files -> changes: what they hold, which of it is refused, and values
uniform    records that differ in values only, read by their shape
parsed     records that a parser has to read, all at once or one by one
messages   batches of messages -> what they speak of, and changes
ends       what rows as messages have at both ends
options    how a file of Canal-JSON was written
"""
