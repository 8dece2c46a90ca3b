"""The clients: blocking, for Twisted and for asyncio, over one core without I/O. See docs/clients.md."""
