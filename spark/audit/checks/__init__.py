"""The checks of an audit: slices of logs against what is claimed of them, windows, and tables from elsewhere."""
