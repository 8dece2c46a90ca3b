"""Pages of HTML that need nothing else (no script, no font, no other file), and the charts on them."""
