"""The commands of ``txbroker``, each in the module of its name."""
