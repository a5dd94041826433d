"""Errors of an object store that does not answer, or refuses, from whichever library they come."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from shlex import quote

from kappa.errors import ConfigError, KappaError, LakeRefusedError, LakeUnreachableError, causes, is_of_rows
from kappa.store.address import bucket_and_key, is_remote
from kappa.store.options import SETTING

#: A message of object_store, of Hadoop's S3A or of the AWS SDK at all.
_OF_A_STORE = re.compile(r"S3 error|Error performing [A-Z]+ https?://|software\.amazon\.awssdk|s3a?://|fs\.s3a")
#: Their words for a request that got no answer, or one that asks to wait.
_UNANSWERED = re.compile(
    r"Generic S3 error|error sending request|operation timed out|"
    r"\b(?:500 Internal Server Error|502 Bad Gateway|503 Service Unavailable|504 Gateway Timeout)\b|"
    r"(?i:status code):?\s+(?:408|409|429)\b|"
    r"AWSServiceIOException|AWSStatus500Exception|AWSServiceThrottledException|AWSApiCallTimeoutException|"
    r"ApiCallAttemptTimeoutException|SdkClientException: Unable to execute HTTP request|"
    r"NoAuthWithAWSException: No AWS Credentials provided by|"  # a role's service gave none
    r"fs\.s3a\.\S* .*(?:Connection refused|Read timed out|timed out)"
)
#: Codes of S3 that ask to send the request again, whatever their status is.
_AGAIN = re.compile(
    r"\b(?:RequestTimeout|SlowDown|Throttl(?:ing|ed)(?:Exception)?|RequestLimitExceeded|TooManyRequests(?:Exception)?|"
    r"OperationAborted|ConditionalRequestConflict)\b"
)
#: Their words for a refusal, with the codes of S3: to wait for it helps nobody. A number alone may be part of a path.
_REFUSED = re.compile(
    r"(?i:status code):?\s+40[13]\b|InvalidAccessKeyId|SignatureDoesNotMatch|AuthorizationHeaderMalformed|"
    r"ExpiredToken|InvalidToken|PermanentRedirect|incorrectly configured region|NoSuchBucket|"
    r"The provided token|"  # has expired, or is malformed: of S3, where the code is not in the text
    r"(?s:Error performing HEAD (?:(?!Error performing).)*status code:?\s+400\b)|"  # an expired one: HEAD has no body
    r"AWSBadRequestException: getFileStatus on|"
    # Hadoop's own word for a service that gave no keys, too
    r"AccessDenied(?!Exception: .*NoAuthWithAWSException: No AWS Credentials provided by)|"
    r"InvalidIdentityToken|IDPRejectedClaim|"  # of the service that gives keys for a token, with 400
    r"XAdminUserNotFound"  # versitygw's, with 404, for a key that it has not heard of
)
#: A request to which the store says no, whether it is there or not: all of 4xx but those of what is not there, or is.
_DENIED = re.compile(r"(?i:status code):?\s+(?:4(?!04|08|09|12|29)\d\d|501)\b")
#: An answer that is the same however often it is asked for.
_FINAL = re.compile(r"(?i:status code):?\s+(?:4(?!08|09|29)\d\d|501)\b")
#: Of obstore and deltalake, for options that they do not take.
_OF_OPTIONS = re.compile(r"Generic Config error")
#: Of object_store, for a key of another program that it does not take: all around it cannot be listed.
_OF_KEY = re.compile(
    r'Encountered object with invalid path: (?:Error parsing )?Path "(.*)"(?: contained|: Encountered)'
)
#: What PyO3 raises for a thread of Rust that ended. It is not an Exception.
_PANIC = "PanicException"
#: A refusal without a body: nobody says whether it is for the keys, or for the request.
_OF_HEAD = re.compile(r"(?s:Error performing HEAD (?:(?!Error performing).)*status code:?\s+400\b)|getFileStatus on")
#: Where object_store asks for the keys of a host's role, which it does when there are no others.
_OF_A_ROLE = re.compile(r"https?://[^/\s]+/latest/(?:api/token|meta-data)")
#: Where object_store, and the AWS SDK for Java, would log in by the token of a service account.
_OF_A_TOKEN = re.compile(
    r"Failed to read token file|(?s:UncheckedIOException: \S+NoSuchFileException.*WebIdentityToken)"
)
#: Colours and arrows with which deltalake lays its errors out in lines, and what obstore adds for its developers.
_LAYOUT = re.compile(r"\x1b\[\d*m|\u21b3|Debug source:.*", re.DOTALL)
_LONGEST = 600


@contextmanager
def answers(path: str) -> Iterator[None]:
    """Within, the errors of an object store are those of Kappa; those of a disk stay as they are.

    Raises:
        LakeUnreachableError: the store does not answer.
        LakeRefusedError: it refuses, or its client ended within.
        ConfigError: its client does not take its settings.
    """
    try:
        yield
    except KappaError:
        raise
    except BaseException as error:  # each library has several classes for one and the same, and one of Rust has none
        if is_remote(path) and (why := _of_kappa(error, path)) is not None:
            raise why from error
        raise


def _of_kappa(error: BaseException, path: str) -> KappaError | None:
    """The error of Kappa in the place of one of a store or its client; None where it is another one's."""
    if type(error).__name__ == _PANIC:
        return LakeRefusedError(
            f"A client of the store ended within at {path}: {_reason(error)}. It may be a setting that it does not "
            "take. Look at the settings of the store: kappa doctor",
            path=path,
        )
    if _OF_OPTIONS.search(_text(error)):
        return ConfigError(
            f"A client of the store does not take its settings: {_reason(error)}. Correct the file of {SETTING}, or "
            "the variables AWS_*: env | grep -o '^AWS_[A-Z_0-9]*'"
        )
    if key := _OF_KEY.search(_text(error)):
        return _foreign_key(path, key[1])
    is_other = _is_of_client(error) and not isinstance(error, FileNotFoundError) and not is_outage(error)
    if is_refusal(error) or is_other:
        return LakeRefusedError(f"The store refuses {path}: {_reason(error)}. {_remedy(error)}", path=path)
    if is_outage(error):
        return LakeUnreachableError(
            f"The store does not answer for {path}: {_reason(error)}. {_advice(error)}", path=path
        )
    return None


def _foreign_key(path: str, key: str) -> LakeRefusedError:
    """The error of a key, or of the beginning of keys, that no client of Kappa can name."""
    bucket = bucket_and_key(path)[0]
    command = f"aws s3api delete-object --bucket {bucket} --key {quote(key)}"
    if key.endswith("/"):
        command = f"aws s3 rm --recursive {quote(f's3://{bucket}/{key}')}"
    return LakeRefusedError(
        f"The store has an object whose key is {key!r}, or begins with it. No client takes such a key, and nothing "
        f"around it can be listed. Kappa never made it: remove it with a tool of the store, such as {command}",
        path=path,
        key=key,
    )


def _is_of_client(error: BaseException) -> bool:
    """Whether an error is one of obstore, which has no other source than the store."""
    return type(error).__module__.startswith("obstore.")


def is_outage(error: BaseException) -> bool:
    """Whether an error, or one of its causes, is a store that does not answer."""
    errors = [one for one in causes(error) if not is_of_rows(one)]
    if any(isinstance(one, LakeUnreachableError) for one in errors):
        return True
    is_final = is_refusal(error) or any(_FINAL.search(_text(one)) and not _asks_again(one) for one in errors)
    return any(_has_words(one, _UNANSWERED) or _asks_again(one) or _has_words(one, _OF_A_TOKEN) for one in errors) and (
        not is_final
    )


def is_refusal(error: BaseException) -> bool:
    """Whether an error, or one of its causes, is a store that answers no."""
    return any(
        isinstance(one, LakeRefusedError)
        or _has_words(one, _REFUSED)
        or (_has_words(one, _DENIED) and not _asks_again(one))
        for one in causes(error)
    )


def _asks_again(error: BaseException) -> bool:
    """Whether a store says that the same request may succeed later."""
    return _has_words(error, _AGAIN)


def _has_words(error: BaseException, words: re.Pattern[str]) -> bool:
    """Whether an error is one of these libraries', and has such words."""
    text = _text(error)
    return bool(_OF_A_STORE.search(text) and words.search(text))


def _text(error: BaseException) -> str:
    return _LAYOUT.sub("", str(error))


def _reason(error: BaseException) -> str:
    """What an error says, in one line."""
    return " ".join(_text(error).split())[:_LONGEST].rstrip(" .:")


def _remedy(error: BaseException) -> str:
    """What to do about a refusal."""
    words = " ".join(map(_text, causes(error)))
    if "RequestTimeTooSkewed" in words:
        return "Set the clock of this host: timedatectl"
    if _OF_HEAD.search(words):
        return "It gives no reason. Check the keys, which may have expired, and the policy of the bucket: kappa doctor"
    if _REFUSED.search(words):
        return "Check the keys and the policy of the bucket: kappa doctor"
    return "Look up what it says, and change that at the store: kappa doctor"


def _advice(error: BaseException) -> str:
    if _OF_A_TOKEN.search(_text(error)):
        return "The token by which this pod or host would get keys is not there: ls -l $AWS_WEB_IDENTITY_TOKEN_FILE"
    if _OF_A_ROLE.search(_text(error)):
        return (
            f"There are no keys, and this host has no role that gives some: set them in the file of {SETTING}, or as "
            "AWS_* in the environment."
        )
    return "Look at its address and the network: kappa doctor"
