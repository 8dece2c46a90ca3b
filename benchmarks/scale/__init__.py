"""The benchmark of scale: how cost grows with the number of things."""
