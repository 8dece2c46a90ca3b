"""The clients: one core without I/O under a blocking, a Twisted and an asyncio face. See docs/clients.md."""
