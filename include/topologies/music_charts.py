"""The five songs that are played most, of each genre and of all."""

from kappa import Effects, Slice, Source, Topology
from kappa.operators import agg, aggregate

PLAY = "songID STRING NOT NULL, name STRING NOT NULL, genre STRING NOT NULL, duration_ms BIGINT NOT NULL"

played = aggregate(rows=PLAY, key=["songID", "name", "genre"], aggregates={"times": agg.count()})
# A count only grows, so that the five greatest of all counts so far are those of five songs. Two songs may have one
# name: a chart has their ids, and `songs` has the names.
best = aggregate(
    rows="chart STRING, songID STRING, times BIGINT",
    key="chart",
    aggregates={"songs": agg.top("songID", 5, by="times")},
)


def rank(slice: Slice) -> Effects:
    """Plays of half a minute count. A song whose count changes may rise in the chart of its genre, and of all."""
    heard = slice["plays"].where("duration_ms >= 30000")
    songs = played(heard, before=slice.table("songs")).changes
    charted = songs.selectExpr("*", "EXPLODE(ARRAY(genre, 'all')) AS chart")
    return {"songs": songs, "charts": best(charted, before=slice.table("charts")).changes}


charts = Topology(
    name="music.charts",
    version="2",
    sources=[Source(topic="plays", schema=PLAY)],
    tables=[played.table("songs"), best.table("charts")],
    step=rank,
)
