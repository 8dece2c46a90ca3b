"""What clients ask of the system: waiting for sockets, TLS, forks; and what both event loops' clients share."""
