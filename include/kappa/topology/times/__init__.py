"""Event time, durations and calendars."""
