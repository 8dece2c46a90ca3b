"""The decision table of a database: its identity, the xids that it decides, and how resolvers read and write it."""
