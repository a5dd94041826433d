"""Number of occurrences of each word."""

from kappa import Slice, Source, Topic, Topology
from kappa.operators import agg, aggregate

lines = Source(topic="lines", format="string", keyed=False)
counts = aggregate(lines, rows="word STRING", key="word", aggregates={"count": agg.count()}, table="counts_store")


def count_words(slice: Slice) -> None:
    """Count words in lower case, whatever separates them; letters of every alphabet belong to words."""
    words = slice["lines"].selectExpr("*", r"EXPLODE(SPLIT(LOWER(value), r'(?U)\W+')) AS word")
    counts(slice, words.where("word != ''"))


word_count = Topology(
    name="text.word_count",
    version="2",
    sources=[lines],
    operators=[counts],
    outputs=[Topic(name="word-counts", of="counts_store", key="word", on_replay="reconcile")],
    step=count_words,
)
