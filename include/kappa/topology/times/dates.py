"""The dates that a column of DATE holds, in days from 1970-01-01: those that both writers of a table can write.

``deltalake`` computes the least and the greatest date of each file with the Rust library ``chrono``, whose dates end
there. Spark's own end in the years -5877641 and 5881580.
"""

from __future__ import annotations

#: -262143-01-01 and +262142-12-31.
FIRST_DAY, LAST_DAY = -96_465_292, 95_026_236
