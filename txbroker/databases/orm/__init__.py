"""What the integrations with object-relational mappers share."""
