"""What is claimed of the logs, and by what: archive, journal, checkpoint; and their bytes."""
