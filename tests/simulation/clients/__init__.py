"""The clients of the simulation: what they send, read and decide, and how they recover from losses."""
