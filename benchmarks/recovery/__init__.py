"""The benchmark of recovery: how long a start takes after kills and clean stops."""
