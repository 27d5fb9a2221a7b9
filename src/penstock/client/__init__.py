"""The client: HTTP only. Finds the server, proves who asks, and gives back parsed JSON or our own exceptions.

Every command imports this, so it imports little: no http.client, urllib, pathlib or ssl unless an address needs it.
"""

from penstock.client.api import Client, Listing

__all__ = ["Client", "Listing"]
