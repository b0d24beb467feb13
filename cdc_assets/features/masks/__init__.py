"""Masks: values that the lake must not have, changed right after they are read.

history               which columns are masked, whatever they are called by then
formats               values of decoded changes, masked right behind their decoder
planning              what steps do to columns whose values are masked
settings              how values of columns are masked
preflight             rules about the setting privacy
"""
