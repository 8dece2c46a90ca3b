"""The judgement of a drill compares what the broker must hold with what it holds."""
