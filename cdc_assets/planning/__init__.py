"""Listing, applied state and checkpoint -> ordered steps, runs and maintenance. Pure."""
