"""Bytes from any storage, with patience."""
