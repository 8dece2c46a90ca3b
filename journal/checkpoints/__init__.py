"""Checkpoints: their files, their rows, and which one a start stands on."""
