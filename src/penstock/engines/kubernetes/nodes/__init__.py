"""The nodes of the cluster: their inventory, and what they do now."""
