"""Logs are copied to the server's disk as they are printed, because pods vanish and their logs with them."""
