"""Checks of an epoch, by what is compared with what.

=================  ====================================================================================================
``diff``           tables and outputs of two epochs at equal offsets, for the verdict of a candidate
``key_comparison`` one table of two epochs, ahead of a handover: the keys whose rows may differ
``content_hash``   two runs over the same range, by hashes of their rows
``second_run``     the second of these runs: a range computed again, apart
``trial``          an upgrade: the last slices with the running code and with the new one
``checks``         tables and outputs of a candidate with the author's own rules
``inspection``     the plans of a step with what may differ from run to run
``attestation``    the markers on Kafka with the ledger
``certificate``    the ledgers of all epochs that were live with each other
``recount``        Delta tables and their files with the ledger
``topic_recount``  changelogs and topic outputs on Kafka with the rows of Delta tables
``measurements``   the cost of a replay with its estimate
=================  ====================================================================================================
"""
