"""Bytes from any storage, with retries.

compression   compressed bytes -> their contents, piece by piece
drivers       options of fsspec's drivers
memory        memory that nothing uses, back to the system
scratch       directories of this machine for what is at work
encryption    bytes that nobody reads without the key
retries       actions repeated after errors that pass
storage       bytes and names from the storage
storage_uri   addresses of storage with parameters
"""
