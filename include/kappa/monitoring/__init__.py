"""What a driver tells others about itself: metrics for Prometheus, notices for a webhook."""
