"""Sessions: their states, rights, accounts and turns, settings, and how long their requests take."""
