"""HTTP: routes that translate and call a service, and who is asking. No rules live here."""
