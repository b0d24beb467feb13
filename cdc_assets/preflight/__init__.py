"""Preflight: whether a feed is safe to apply, by its settings, names, files and first bytes.

conformance    rules that hold for every source, and the first bytes
files          findings about the files
changefeeds    findings about settings of TiCDC that concern files and topics alike
storage_sink   findings about a storage sink
topics         findings about topics
"""
