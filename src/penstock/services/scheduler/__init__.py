"""The queue of engines that do not schedule themselves."""
