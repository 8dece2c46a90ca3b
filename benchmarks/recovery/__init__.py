"""The benchmark of recovery measures how long a start takes after kills and clean stops."""
