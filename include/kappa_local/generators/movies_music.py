"""Ratings of movies and plays of songs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kappa_local.generators.draws import Block, Made

RATINGS, PLAYS = "ratings", "plays"
_MOVIES, _VIEWERS, _SONGS, _ARTISTS = 80, 500, 200, 40
_GENRES = ("Punk", "Hip Hop", "Jazz", "Metal", "Folk")
_NOUNS = ("River", "Station", "Winter", "Garden", "Letter", "Mirror", "Island", "Engine")


def ratings(block: Block) -> Iterator[Made]:
    """Ratings of 1 to 10 by movie. A viewer rates some movies several times."""
    movie = block.draw(1, _MOVIES)
    drawn = (movie, block.draw(2, _VIEWERS), block.draw(3, 6), block.draw(4, 5, of=movie))
    for time, at, viewer, luck, quality in zip(block.times, *(column.tolist() for column in drawn), strict=True):
        name = f"m{at:03d}"
        yield (
            name.encode(),
            {
                "movieID": name,
                "title": f"The {_NOUNS[at % len(_NOUNS)]} {1 + at // len(_NOUNS)}",
                "userID": f"u{viewer:04d}",
                "rating": 1 + luck + quality,
                "CreatedTime": time,
            },
        )


def plays(block: Block) -> Iterator[Made]:
    """Plays by song: a few songs have most of them, and one play in four ends before 30 seconds are over."""
    many = block.draw(11, 1_000) / 1_000
    song = (many**2 * _SONGS).astype(np.int64)
    drawn = (song, block.draw(12, 120), block.draw(13, _ARTISTS, of=song))
    for time, at, seconds, artist in zip(block.times, *(column.tolist() for column in drawn), strict=True):
        name = f"s{at:03d}"
        yield (
            name.encode(),
            {
                "songID": name,
                "name": f"{_NOUNS[at % len(_NOUNS)]} No. {1 + at // len(_NOUNS)}",
                "artist": f"Artist {artist}",
                "genre": _GENRES[artist % len(_GENRES)],
                "duration_ms": seconds * 1_000,
                "CreatedTime": time,
            },
        )
