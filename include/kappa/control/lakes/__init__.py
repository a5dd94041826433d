"""A lake as a whole: its copy to another address, and where it is.

``inventory``     the files of a lake, and when each is copied
``transfer``      copying them, several at once
``writers``       its drivers and archivers, which end before it is closed
``marks``         which attempt fills a target
``relocations``   moves on record
``moving``        the move from one address to another
``opening``       the way back
"""
