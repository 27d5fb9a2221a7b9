"""Check requests for volumes against quotas, create volumes and delete them."""
