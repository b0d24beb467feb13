"""The files that a TiCDC changefeed writes into object storage.

source         metadata, schema files, listing
options        sink URI and changefeed TOML -> sink options, and where the bucket is
paths          path grammar, both ways
schema_file    schema files and their checksum
"""
