"""The five most played songs per genre and overall."""

from kappa import Slice, Source, Topology
from kappa.operators import agg, aggregate

plays = Source(topic="plays", schema="songID STRING NOT NULL, name STRING NOT NULL, genre STRING NOT NULL")
played = aggregate(plays, key=["songID", "name", "genre"], aggregates={"times": agg.count()}, table="songs")
# A count only grows, so the five greatest of all counts so far belong to five songs.
best = aggregate(
    plays,
    rows="chart STRING, name STRING, times BIGINT",
    key="chart",
    aggregates={"songs": agg.top("name", 5, by="times")},
    table="charts",
)


def rank(slice: Slice) -> None:
    """A song whose count changes may rise in the chart of its genre and in the overall chart."""
    songs = played(slice).changes
    best(slice, songs.selectExpr("*", "EXPLODE(ARRAY(genre, 'all')) AS chart"))


charts = Topology(name="music.charts", version="1", sources=[plays], operators=[played, best], step=rank)
