"""The judgement of a drill: what the broker must hold, what it holds, and what is wrong with that."""
