"""What people ask for, and the wiring: open, inspect, status, release, replay, rebuild, maintain."""
