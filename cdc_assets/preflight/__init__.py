"""Is this feed safe to apply? What its settings, names, files and first bytes tell."""
