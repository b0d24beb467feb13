"""Bytes from any storage, with retries.

compression   compressed bytes -> their contents, piece by piece
drivers       options of fsspec's drivers
names         the names below a prefix, without those that need not be looked at again
storage       bytes from the storage
storage_uri   addresses of storage with parameters
"""
