"""Scheduled messages: what clients send for later, ask about and take back, and the clock that lets the rest go."""
