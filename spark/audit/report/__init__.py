"""What an audit says: its summary, page, plots, and where they go."""
