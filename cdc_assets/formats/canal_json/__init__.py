"""Canal-JSON as TiCDC writes it: a JSON record a row, in files and as messages.

decode       files -> changes: by shape where records are alike, else by parsing each
uniform      records that differ in values only, read by their shape
messages     batches of messages -> what they speak of, and changes
records      what one parsed record says
    options   how a file of Canal-JSON was written
"""
