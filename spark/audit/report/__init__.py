"""The report of an audit: its summary, page and plots, and where they are written."""
