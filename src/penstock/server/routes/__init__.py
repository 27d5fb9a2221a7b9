"""One file per noun: read the request, call the service, answer."""
