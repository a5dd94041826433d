"""Taking over a stream that runs: where its job stood, and the first epoch that goes on from there."""
