"""Tables that follow the changes of a database."""
