"""Settings of the documentation site, which ``make docs`` builds with Sphinx: every warning fails the build.

The source directory is the root of the checkout, so that links from page to page are the same on the site and in the
files. Only the pages under ``docs/``, and three beside it, become pages of the site.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

project = "txbroker"
author = "the txbroker authors"
root_doc = "docs/index"
include_patterns = ["ARCHITECTURE.md", "CHANGELOG.md", "SECURITY.md", "docs/**"]
exclude_patterns = [".*", "build", "dist", "docs/static", "**/__pycache__"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "site_extension"]

html_theme = "furo"
html_title = "txbroker"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_show_sourcelink = False

# Headings down to the fourth level can be linked to; a link to one that is missing is a warning.
myst_heading_anchors = 4

autodoc_member_order = "groupwise"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
nitpicky = True
