"""The clients' use of the system: waiting for sockets, TLS, forks; and the common part of both event loops' clients."""
