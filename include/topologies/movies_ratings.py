"""The average rating of each movie: only the first vote of each viewer counts."""

from kappa import Source, Topology
from kappa.operators import agg, aggregate, deduplicate

votes = Source(topic="ratings", schema="movieID STRING NOT NULL, userID STRING NOT NULL, rating INT NOT NULL")
first_votes = deduplicate(votes, key=["movieID", "userID"], within=None, table="votes")
averages = aggregate(
    first_votes.rows, key="movieID", aggregates={"count": agg.count(), "average": agg.avg("rating")}, table="averages"
)

ratings = Topology(name="movies.ratings", version="2", sources=[votes], operators=[first_votes, averages])
