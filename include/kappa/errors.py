"""Every error that Kappa raises on purpose.

KappaError
├── Terminal                    trying again changes nothing; exit code 1
│   ├── UsageError              the call itself is wrong (exit code 2)
│   │   └── ConfigError         a setting is missing, unknown or malformed
│   ├── TopologyError           a topology is declared wrongly
│   ├── CodeError               stored or deployed code does not import
│   ├── UnknownTopologyError    no topology of that name is deployed or on record
│   │   └── UnknownTableError   an epoch has no table or output of that name
│   ├── UnknownEpochError       the topology has no such epoch
│   ├── UnknownArchiveError     the topic has no archive
│   ├── UnknownGroupError       no consumer group of that name has offsets
│   ├── SavepointError          no savepoint has that name, or it is taken, or no commit to name
│   ├── RefusedError            a plan has findings that refuse it
│   ├── AdoptionError           tables of another job have rows that an epoch cannot begin with
│   ├── IllegalTransitionError  an epoch cannot go from one stage to the other
│   ├── MoveRefusedError        the live pointer is not where the move expected it
│   ├── StaleWriterError        another driver claimed the epoch
│   ├── SupersededError         the epoch was rebuilt in another lake
│   ├── LakeMovedError          the lake is at another address now
│   ├── DriverAlreadyRunningError  a healthy driver has the epoch
│   ├── StuckError              a slice failed too often and the epoch waits
│   ├── ForeignCommitError      another program wrote into an epoch's Delta tables
│   ├── LedgerError             ledger rows contradict each other, or the ledger is gone
│   ├── DamagedTableError       files of a Delta table are missing or torn
│   ├── PublicationError        an epoch's table cannot be shown at the path of its published table
│   ├── NewerFormatError        a stored record is in a format of newer code
│   ├── RecordRefusedError      the broker will never take a record that an epoch sends
│   ├── SchemaRefusedError      the schema registry refuses a schema, or has another under an id that was used
│   ├── LakeRefusedError        the object store of the lake refuses this process
│   ├── DisagreementError       the broker, the ledger and its tables do not tell of the same slices
│   └── DataLossError           records that a slice needs are no longer in the log
└── Transient                   the same call may succeed later; exit code 3
    ├── BrokerUnreachableError  Kafka does not answer, or cannot at the moment
    ├── RegistryUnreachableError  the schema registry does not answer, lacks a schema, or none is set
    ├── LakeUnreachableError    the lake cannot be read or written
    ├── DriverNotRunningError   the epoch has no driver at the moment
    ├── MiscountedError         records of a slice do not add up, or are others than before; it is computed once more
    └── ConflictError           another process wrote at the same time; reload and look again
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

#: Longest message of a wrong call, in characters.
_SHOWN = 1_000


class KappaError(Exception):
    """An error with a message for people and its values for programs.

    Attributes:
        data: the values that the message names, by name.
    """

    exit_code = 1

    def __init__(self, message: str, **data: Any) -> None:
        super().__init__(message)
        self.data: dict[str, Any] = data


class Terminal(KappaError):
    """Trying again changes nothing."""


class Transient(KappaError):
    """The same call may succeed later."""

    exit_code = 3


class UsageError(Terminal):
    """The call itself is wrong. Its message repeats what was typed, so the middle of a long one is left out."""

    exit_code = 2

    def __init__(self, message: str, **data: Any) -> None:
        shown = message if len(message) <= _SHOWN else f"{message[: _SHOWN // 2]} … {message[-_SHOWN // 2 :]}"
        super().__init__(shown, **data)


class ConfigError(UsageError):
    """A setting is missing, unknown or malformed."""


class TopologyError(Terminal):
    """A topology is declared wrongly; raised when it is defined, not when it runs."""


class CodeError(Terminal):
    """Stored or deployed code does not import."""


class UnknownTopologyError(Terminal):
    """No topology of that name is deployed or on record."""


class UnknownTableError(UnknownTopologyError):
    """An epoch has no table or output of that name."""


class UnknownEpochError(Terminal):
    """The topology has no such epoch."""


class UnknownArchiveError(Terminal):
    """The topic has no archive."""


class UnknownGroupError(Terminal):
    """No consumer group of that name has offsets."""


class SavepointError(Terminal):
    """No savepoint has that name, or the name is taken, or there is no commit to give it to."""


class RefusedError(Terminal):
    """A plan has findings that refuse it.

    Attributes:
        data: ``findings``, the refusing findings.
    """


class AdoptionError(Terminal):
    """The tables of another job moved on, were made anew, or have rows that an epoch cannot begin with."""


class IllegalTransitionError(Terminal):
    """An epoch cannot go from one stage to the other."""


class MoveRefusedError(Terminal):
    """The live pointer is not where the move expected it."""


class StaleWriterError(Terminal):
    """Another driver claimed the epoch; this one must stop and has changed nothing."""


class SupersededError(Terminal):
    """The epoch was rebuilt in another lake, which sends since; this one must stop for good.

    Attributes:
        data: ``by``, the epoch that was built from it; ``lake``, the id of the lake that it is in.
    """


class LakeMovedError(Terminal):
    """The lake was copied to another address, where it goes on; nothing is read or written at this one.

    Attributes:
        data: ``lake``, this address; ``to``, the other one.
    """


class DriverAlreadyRunningError(Terminal):
    """A driver with a fresh heartbeat has the epoch."""


class StuckError(Terminal):
    """A slice failed too often and the epoch waits for a decision."""


class ForeignCommitError(Terminal):
    """Another program wrote into an epoch's Delta tables."""


class LedgerError(Terminal):
    """Ledger rows contradict each other, or the ledger is gone."""


class DamagedTableError(Terminal):
    """Files of a Delta table are missing or torn: entries or checkpoints of its log, or files that it names.

    Attributes:
        data: ``path``, the table; ``problems``, what is wrong with each file.
    """


class PublicationError(Terminal):
    """A table of an epoch has features that its published table would not show as they are meant, or another program
    has a table at the path.

    Attributes:
        data: ``path``, the table; ``feature``.
    """


class NewerFormatError(Terminal):
    """A stored record, or the lake, is in a format of newer code, which this code would misread.

    Attributes:
        data: ``format``, that of the record; ``known``, the newest that this code reads.
    """


class RecordRefusedError(Terminal):
    """The broker will never take a record that an epoch sends; nothing of its transaction was sent.

    Attributes:
        data: ``topic``; ``setting``, the topic's setting that says so, empty where it is none; ``value``, what it is
            set to; ``code``, Kafka's; ``origin``, where the record comes from, as ``topic``, ``partition`` and
            ``offset``, None where only the slice is known. Never the record itself.
    """


class SchemaRefusedError(Terminal):
    """The schema registry refuses a schema, or has another one under an id that was used."""


class LakeRefusedError(Terminal):
    """The store of the lake refuses this process: wrong keys, a policy, or the mode of a file."""


class DisagreementError(Terminal):
    """The broker, the ledger and its tables do not tell of the same slices: one of them is older than another."""


class DataLossError(Terminal):
    """Records that a slice needs are no longer in the log."""


class BrokerUnreachableError(Transient):
    """Kafka does not answer, or cannot do what it is asked for at the moment."""


class RegistryUnreachableError(Transient):
    """The schema registry does not answer as one, lacks a schema for the first time, or no registry is set."""


class LakeUnreachableError(Transient):
    """The lake cannot be read or written."""


class DriverNotRunningError(Transient):
    """The epoch has no driver at the moment."""


class MiscountedError(Transient):
    """Records of a slice do not add up for the first time, or are others than at the attempt before, as after a
    compaction; the slice was abandoned and is computed once more.
    """


class ConflictError(Transient):
    """Another process wrote at the same time; reload and look again."""


#: Errors of what is stored of one epoch: they must not hide the others.
UNREADABLE = (DamagedTableError, NewerFormatError, LedgerError, OSError)
#: How py4j begins its errors.
_BRIDGE = "An error occurred while calling "
#: How Spark begins the message of an error that has a condition.
_CONDITION = re.compile(r"\[[A-Z_.0-9]+\]")
#: How many of many things a message names.
_FEW = 3
#: Of Spark, for data, for functions of the step, and for what its SQL raises.
_OF_ROWS = re.compile(r"SQLSTATE: (?:22|38|P0)|An exception was thrown from the Python worker")


def causes(error: BaseException) -> list[BaseException]:
    """An error, what it was raised from or while, and so on."""
    chain: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in chain:
        chain.append(one)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return chain


def is_of_rows(error: BaseException) -> bool:
    """Whether Spark says that rows or the code of a step are at fault: its words may then be those of a record."""
    return bool(_OF_ROWS.search(str(error)))


def first_line(error: BaseException) -> str:
    """The first line of an error's message, at most 600 characters; empty when it has none.

    Of an error of Java that is the second one: the first one has the call of Python's bridge, which says nothing.
    Control characters are written out: Spark repeats the value of a record as it is.
    """
    lines = str(error).strip().splitlines()
    if len(lines) > 1 and lines[0].startswith(_BRIDGE):
        lines = [lines[1].removeprefix(": ")]
    return visible(lines[0])[:600] if lines else ""


def unworded(error: BaseException) -> str:
    """Spark's condition of an error, else its kind: what may be told where its message may not, which may hold values.

    Examples:
        >>> unworded(ValueError("[CAST_INVALID_INPUT] The value 'C-17' cannot be cast")), unworded(ValueError("C-17"))
        ('[CAST_INVALID_INPUT]', 'ValueError')
    """
    condition = _CONDITION.match(first_line(error))
    return condition[0] if condition else type(error).__name__


def first_few(texts: Iterable[object], between: str = ", ") -> str:
    """The first few of many things that a message names, and how many more there are: what comes after them, such as
    the way out, is within what :func:`first_line` keeps.
    """
    every = list(map(str, texts))
    more = f" and {len(every) - _FEW:,} more" if len(every) > _FEW else ""
    return between.join(every[:_FEW]) + more


def visible(text: str) -> str:
    """Text whose control characters are written out: a value must not move the reader's cursor, nor end a line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
