"""The average rating of each movie; each repeated rating of a viewer counts."""

from kappa import Source, Topology
from kappa.operators import agg, aggregate

votes = Source(topic="ratings", schema="movieID STRING NOT NULL, userID STRING NOT NULL, rating INT NOT NULL")
averages = aggregate(
    votes, key="movieID", aggregates={"count": agg.count(), "average": agg.avg("rating")}, table="averages"
)

ratings = Topology(name="movies.ratings", version="1", sources=[votes], operators=[averages])
