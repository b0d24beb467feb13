"""Bytes from any storage, with patience.

compression   compressed bytes -> their contents, piece by piece
drivers       what fsspec's drivers are given
storage       bytes from the storage
storage_uri   addresses of storage with parameters
"""
