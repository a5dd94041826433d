"""The record of what happened: epochs, ledgers, the code and the schemas that they name."""
