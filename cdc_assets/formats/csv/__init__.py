"""CSV as TiCDC's storage sink writes it.

decode    files -> changes, by column selectors and headers, and what explains a misfit
options   how a file of CSV was written
"""
