"""What the supervisor is told to start: sandbox, mounts, identity, script and environment."""
