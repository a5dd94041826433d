"""Small files, folders and ages of the lake, on a local disk or on an object store.

``address``   the lake's address, parsed once
``options``   what a process needs to reach an object store
``profiles``  keys in a profile of AWS's tools
``authorities``  certificate authorities that are not the system's
``retries``   how long a call waits for an answer
``store``     what both kinds offer
``stores``    the store of a path
``local``     a disk
``remote``    an object store
``outages``   errors of a store that does not answer
"""
