"""Bytes of splits -> checked and reduced changes of one window, on executors or in the driver."""
