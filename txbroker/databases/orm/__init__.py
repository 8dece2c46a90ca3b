"""The common part of the integrations with object-relational mappers."""
