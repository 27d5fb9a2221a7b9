"""The use cases: every rule and every permission check, between the routes and the outside world."""
