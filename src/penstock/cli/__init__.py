"""The command line: words in, words out. It speaks only HTTP, through the client; one file per noun.

What `jobs list` imports decides how fast every command feels, so modules are imported when their command is used.
"""

from penstock.cli import lean  # noqa: F401 - before anyone imports click
