"""Settings of Sphinx for the manual as a site; scripts/site.sh copies the pages beside this file."""

import os
import sys

# Where the package is that the reference of Python describes.
sys.path.insert(0, os.environ["PUNCTUAL_PACKAGE"])

project = "Punctual"
copyright = "the authors of Punctual, MIT or Apache-2.0"
version = release = os.environ["PUNCTUAL_VERSION"]

root_doc = "index"
# Docstrings write code in single backticks.
default_role = "code"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
# Other folders have their texts for those who read the source.
exclude_patterns = ["packaging", "fuzz", "labs", "crates", "papers", "scripts"]

# As GitHub makes them, for links to a heading.
myst_heading_anchors = 4
# A test runs the notebooks and compares what they print.
nb_execution_mode = "off"
# Clusters are extras of the package.
autodoc_mock_imports = ["ray", "distributed"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"

html_theme = "furo"
html_title = "Punctual"
html_show_sphinx = False
html_copy_source = False
