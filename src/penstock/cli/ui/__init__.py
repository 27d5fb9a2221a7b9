"""The pieces that commands share: tables, output, the terminal, options and confirmation."""
