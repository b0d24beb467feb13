"""What every table was called and looked like, when; policies and releases decide what the feed leaves open."""
