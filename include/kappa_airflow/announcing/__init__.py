"""Asset events for epochs that go live."""
