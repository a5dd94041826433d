"""The average rating of each movie: one vote for each viewer, the first one."""

from kappa import Effects, Slice, Source, Topology
from kappa.operators import agg, aggregate, deduplicate

RATING = "movieID STRING NOT NULL, userID STRING NOT NULL, rating INT NOT NULL"

first_votes = deduplicate(rows=RATING, key=["movieID", "userID"], within=None)
averages = aggregate(rows=RATING, key="movieID", aggregates={"count": agg.count(), "average": agg.avg("rating")})


def rate(slice: Slice) -> Effects:
    """Votes that count, and the averages with them."""
    votes = first_votes(slice["ratings"], before=slice.table("votes"))
    return {"votes": votes.changes, "averages": averages(votes.rows, before=slice.table("averages")).changes}


ratings = Topology(
    name="movies.ratings",
    version="2",
    sources=[Source(topic="ratings", schema=RATING)],
    tables=[first_votes.table("votes"), averages.table("averages")],
    step=rate,
)
