"""AMQP's connections and channels, whose methods become requests of the broker (decision 0058)."""
