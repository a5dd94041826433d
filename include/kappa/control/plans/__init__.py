"""The facts that a plan is made of, gathered from broker, lake and code."""
