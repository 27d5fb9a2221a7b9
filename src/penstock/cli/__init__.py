"""The command line. It speaks only HTTP, through the client; a command's path is its file's path.

What `jobs list` imports decides how fast every command feels, so modules are imported when their command is used.
"""
