"""The moves of the live pointer, as a driver takes part in them."""
