"""What sessions ask of consumer groups: offsets that are finished, claims, and descriptions for people."""
