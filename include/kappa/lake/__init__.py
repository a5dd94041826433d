"""What is in the lake: ledgers, the record of epochs, tables, code."""
