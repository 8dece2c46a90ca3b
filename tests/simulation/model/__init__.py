"""The model that judges the simulation: what must hold, without how it is achieved."""
