"""CSV as TiCDC's storage sink writes it.

decode    files -> changes
dialect   where records and fields begin and end
columns   column selectors, headers, and what explains a misfit
    options   how a file of CSV was written
"""
