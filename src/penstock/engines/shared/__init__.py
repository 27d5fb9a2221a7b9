"""Parts that two or more engines need. They know none of the engines."""
