"""Is this feed safe to apply? What its settings, names, files and first bytes tell.

conformance    rules that hold for every source, and the first bytes
files          what is odd about the files
storage_sink   what is to be known of a storage sink
"""
