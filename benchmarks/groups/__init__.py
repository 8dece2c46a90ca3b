"""What workers of consumer groups achieve, with a handler that waits."""
