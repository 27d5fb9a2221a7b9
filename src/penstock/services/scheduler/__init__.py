"""Queue and place workloads for engines that do not schedule themselves."""
