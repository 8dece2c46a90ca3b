"""What listens: endpoints, TLS and its certificates, connections through proxies, the administrator's socket."""
