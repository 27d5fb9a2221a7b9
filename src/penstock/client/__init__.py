"""The client: HTTP only. It finds the server, authenticates and returns parsed JSON or our exceptions.

Every command imports this, so it imports little: no http.client, urllib, pathlib or ssl unless an address needs it.
"""
