"""A lake as a whole: its copy to another address, and where it is.

``inventory``   the files of a lake, and when each is copied
``transfer``    copying them, several at once
``moving``      the move from one address to another, and the way back
"""
