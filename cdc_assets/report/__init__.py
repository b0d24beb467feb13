"""How things are shown: as text, as JSON, as generated pages."""
