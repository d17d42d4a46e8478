"""A session as one HTML file, and its drawings."""
