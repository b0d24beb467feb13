"""Canal-JSON as TiCDC's storage sink writes it: a JSON record a row.

decode       files -> changes: by shape where records are alike, else by parsing each
uniform      records that differ in values only, read by their shape
records      what one parsed record says
"""
