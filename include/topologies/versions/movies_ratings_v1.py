"""The average rating of each movie; a viewer who rates it again votes again."""

from kappa import Effects, Slice, Source, Topology
from kappa.operators import agg, aggregate

RATING = "movieID STRING NOT NULL, userID STRING NOT NULL, rating INT NOT NULL"

averages = aggregate(rows=RATING, key="movieID", aggregates={"count": agg.count(), "average": agg.avg("rating")})


def rate(slice: Slice) -> Effects:
    """The averages with all votes."""
    return {"averages": averages(slice["ratings"], before=slice.table("averages")).changes}


ratings = Topology(
    name="movies.ratings",
    version="1",
    sources=[Source(topic="ratings", schema=RATING)],
    tables=[averages.table("averages")],
    step=rate,
)
