"""The five most played songs per genre and overall."""

from kappa import Slice, Source, Topology
from kappa.operators import agg, aggregate

PLAY = "songID STRING NOT NULL, name STRING NOT NULL, genre STRING NOT NULL, duration_ms BIGINT NOT NULL"

plays = Source(topic="plays", schema=PLAY)
played = aggregate(plays, key=["songID", "name", "genre"], aggregates={"times": agg.count()}, table="songs")
# A count only grows, so the five greatest of all counts so far belong to five songs. Two songs may have the same name:
# a chart has their ids, and `songs` has the names.
best = aggregate(
    plays,
    rows="chart STRING, songID STRING, times BIGINT",
    key="chart",
    aggregates={"songs": agg.top("songID", 5, by="times")},
    table="charts",
)


def rank(slice: Slice) -> None:
    """Plays of half a minute count. A song whose count changes may rise in the chart of its genre and in the overall
    chart.
    """
    songs = played(slice, slice["plays"].where("duration_ms >= 30000")).changes
    best(slice, songs.selectExpr("*", "EXPLODE(ARRAY(genre, 'all')) AS chart"))


charts = Topology(name="music.charts", version="2", sources=[plays], operators=[played, best], step=rank)
