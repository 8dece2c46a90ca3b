"""The benchmark of scale measures how cost grows with the number of things."""
