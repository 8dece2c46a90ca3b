"""The records of the journal: their kinds, parts and bytes, the headers around them, and outcomes of transactions."""
