"""What a candidate is checked against before readers get it."""
