"""The report of a drill says what was found: as data, as a page and as a timeline."""
