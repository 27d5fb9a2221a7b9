"""What two or more engines need. It knows none of them."""
