"""The main job on real input: a year of flights through a broker that is killed on the way."""
