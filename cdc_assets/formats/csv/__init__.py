"""CSV as TiCDC's storage sink writes it.

decode    files -> changes
dialect   where records and fields begin and end
columns   which column is which
    options   how a file of CSV was written
"""
