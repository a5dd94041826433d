"""What a candidate is held against before readers get it."""
