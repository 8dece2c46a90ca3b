"""The model that judges the simulation: what must hold, and nothing of how it is achieved."""
