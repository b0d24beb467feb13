"""Bytes from any storage, with patience.

compression   compressed bytes -> their contents, piece by piece
storage       bytes from the storage
storage_uri   addresses of storage with parameters
"""
