"""Errors of an object store that does not answer, or refuses, from whichever library they come."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from kappa.errors import LakeRefusedError, LakeUnreachableError, causes, first_line
from kappa.store.address import is_remote

#: Words of object_store, of Hadoop's S3A and of the AWS SDK for a request that got no answer, or one that asks to wait.
_UNANSWERED = re.compile(
    r"Generic S3 error|error sending request|operation timed out|Max(?:imum)? retries|"
    r"\b(?:500 Internal Server Error|502 Bad Gateway|503 Service Unavailable|504 Gateway Timeout|SlowDown)\b|"
    r"AWSServiceIOException|AWSStatus500Exception|AWSServiceThrottledException|AWSApiCallTimeoutException|"
    r"ApiCallAttemptTimeoutException|SdkClientException: Unable to execute HTTP request|"
    r"fs\.s3a\.\S* .*(?:Connection refused|Read timed out|timed out)"
)
#: A message of one of these libraries at all.
_OF_A_STORE = re.compile(r"S3 error|Error performing [A-Z]+ https?://|software\.amazon\.awssdk|s3a?://|fs\.s3a")
#: The same libraries' words for a refusal: to wait for it helps nobody.
_REFUSED = re.compile(
    r"\b(?:401|403)\b|Forbidden|Unauthorized|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|"
    r"NoSuchBucket"
)


@contextmanager
def answers(path: str) -> Iterator[None]:
    """Within, the errors of an object store are those of Kappa; those of a disk stay as they are.

    Raises:
        LakeUnreachableError: the store does not answer.
        LakeRefusedError: it refuses.
    """
    try:
        yield
    except Exception as error:  # each library has several classes for one and the same
        if is_remote(path) and is_refusal(error):
            raise LakeRefusedError(
                f"The store refuses {path}: {first_line(error)}. Check the keys and the policy of the bucket: kappa "
                "doctor",
                path=path,
            ) from error
        if is_remote(path) and is_outage(error):
            raise LakeUnreachableError(
                f"The store does not answer for {path}: {first_line(error)}", path=path
            ) from error
        raise


def is_outage(error: BaseException) -> bool:
    """Whether an error, or one of its causes, is a store that does not answer."""
    errors = causes(error)
    if any(isinstance(one, LakeUnreachableError) for one in errors):
        return True
    return any(_UNANSWERED.search(str(one)) for one in errors) and not is_refusal(error)


def is_refusal(error: BaseException) -> bool:
    """Whether an error, or one of its causes, is a store that answers no."""
    return any(
        isinstance(one, LakeRefusedError) or (_OF_A_STORE.search(str(one)) and _REFUSED.search(str(one)))
        for one in causes(error)
    )
