"""The files that a TiCDC changefeed writes into object storage.

source         metadata, schema files, listing
options        sink URI and changefeed TOML -> sink options, and where the bucket is
sink_options   how TiCDC writes rows and paths, as a value
paths          path grammar, both ways
schema_file    schema files and their checksum
"""
