"""The bytes of AMQP 0-9-1, sans I/O: field tables, methods, properties, frames (decision 0058)."""
