"""The report of a drill: what was found, as data, as a page and as a timeline."""
