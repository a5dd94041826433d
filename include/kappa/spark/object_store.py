"""Settings of a Spark session for a lake on S3, from the options with which deltalake reaches it.

Options have the names of ``object_store``, the library below deltalake:
https://docs.rs/object_store/latest/object_store/aws/enum.AmazonS3ConfigKey.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kappa.errors import ConfigError
from kappa.store.address import is_remote
from kappa.store.option_values import is_true
from kappa.store.options import REGION, KeyFile, access_of, check_access

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The class in ``S3ConditionalLogStore.java``.
LOG_STORE = "dev.kappa.S3ConditionalLogStore"
#: The class in ``S3FileCredentials.java``, and the settings with which file and which profile in it it reads.
FILE_KEYS = "dev.kappa.S3FileCredentials"
KEY_FILE = "spark.hadoop.fs.s3a.kappa.keys.file"
KEY_PROFILE = "spark.hadoop.fs.s3a.kappa.keys.profile"
_FILE_SYSTEM = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_HADOOP = "spark.hadoop.fs.s3a."
#: That of lakes, and that of Hadoop's own addresses: no table is less safe by the one than by the other.
_SCHEMES = ("s3", "s3a")
#: Hadoop's own, with the token of a service account, by which pods of Kubernetes log in; the host's role after them.
_PROVIDERS = (
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider",
)
_HOST_PROVIDER = "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider"
_JAVA_REGION = "-Daws.region="
#: How often Hadoop tries again: a store that refuses all requests is an error within a minute. By itself it asks a busy
#: one twenty times, each time after twice the pause before, and is still waiting hours after the store is back.
_RETRIES = {"attempts.maximum": "3", "retry.limit": "4", "retry.throttle.limit": "7"}
#: Setting of Hadoop -> values with which it creates a file without a look, or cannot create one on a condition.
_CARELESS = {
    "create.performance": {"true"},
    "performance.flags": {"create", "*"},
    "create.conditional.enabled": {"false"},
}
#: The same of all buckets, or of one.
_CREATION = re.compile(rf"{re.escape(_HADOOP)}(?:bucket\..+\.)?({'|'.join(map(re.escape, _CARELESS))})")


def settings(
    lake: str, options: Mapping[str, str], environ: Mapping[str, str], key_file: KeyFile | None = None
) -> dict[str, str]:
    """Settings of a session whose lake is on S3; none for another lake.

    Of keys that a file has they name the file alone, and each process of Spark reads it on its own host.

    Args:
        lake: path or URL of the lake.
        options: keys, region and address of the store. Other options are deltalake's own.
        environ: variables of the environment; ``AWS_REGION`` stands for an ``aws_region`` that the options lack, and so
            do the others, as for deltalake.
        key_file: the file that the keys are from; None where they are not from one.

    Raises:
        ConfigError: a half of a key is missing, or the address is one that deltalake refuses.

    Examples:
        >>> settings("/srv/lake", {}, {})
        {}
        >>> settings("s3://lakes/orders", {"aws_region": "eu-west-1"}, {})["spark.hadoop.fs.s3a.endpoint.region"]
        'eu-west-1'
    """
    if not is_remote(lake):
        return {}
    # object_store takes names of variables that are partly in small letters, too.
    variables = {name.upper(): value for name, value in environ.items() if name.startswith("AWS_")}
    access = access_of(options, variables)
    check_access(access)
    has_token = bool(environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"))
    keys = _credentials(access, has_token) if key_file is None else {"aws.credentials.provider": FILE_KEYS}
    return {
        # Made anew after each commit by a file that is copied and deleted: a dozen requests, half of them dear ones.
        "spark.databricks.delta.writeChecksumFile.enabled": "false",
        **{f"spark.hadoop.fs.{scheme}.impl": _FILE_SYSTEM for scheme in _SCHEMES},
        **{_log_store(scheme): LOG_STORE for scheme in _SCHEMES},
        **{f"{_HADOOP}{name}": value for name, value in {**_RETRIES, **_address(lake, access), **keys}.items()},
        **({} if key_file is None else {KEY_FILE: key_file.path, KEY_PROFILE: key_file.profile}),
    }


def java_options(options: str, conf: Mapping[str, str]) -> str:
    """Options of a JVM, with the region of a session's store; one that they name stays.

    The service that gives keys for a token is that of a region. AWS's SDK looks for it in the environment of a process,
    and asks another service where that has none.
    """
    region = conf.get(f"{_HADOOP}endpoint.region", "")
    return options if not region or _JAVA_REGION in options else f"{options} {_JAVA_REGION}{region}".strip()


def check(conf: Mapping[str, str]) -> None:
    """Hold that a session commits to a lake on S3 only where nobody else did.

    Args:
        conf: all settings of the session, those of Hadoop with ``spark.hadoop.`` before their names.

    Raises:
        ConfigError: it has another log store, or Hadoop's settings take its condition away.
    """
    for scheme in _SCHEMES:
        name = _log_store(scheme)
        if (log_store := conf.get(name)) != LOG_STORE:
            raise ConfigError(
                f"Spark would commit to the lake on S3 by {log_store or 'the log store of Delta'}, which overwrites "
                f"what deltalake committed in between, and nobody is told. Kappa sets {name} to {LOG_STORE}: remove it "
                "from KAPPA_SPARK_CONF and spark-defaults.conf, or stop the session that this process had before.",
                name=name,
                value=log_store,
            )
    for name, value in conf.items():
        match = _CREATION.fullmatch(name)
        if match and _CARELESS[match[1]] & {word.strip().lower() for word in value.split(",")}:
            raise ConfigError(
                f"Spark has {name}={value}, by which Hadoop writes a file on S3 without regard to one that is there. "
                "Remove it from KAPPA_SPARK_CONF, spark-defaults.conf and Hadoop's core-site.xml.",
                name=name,
                value=value,
            )


def check_session(session: SparkSession, lake: str) -> None:
    """The same for a session that has started, with what its Hadoop read elsewhere; of a lake on S3 only.

    Raises:
        ConfigError: as :func:`check`.
    """
    if is_remote(lake):
        hadoop = session.sparkContext._jsc.hadoopConfiguration().getPropsWithPrefix("fs.s3a.")
        check({**dict(session.sparkContext.getConf().getAll()), **{f"{_HADOOP}{key}": hadoop[key] for key in hadoop}})


def _log_store(scheme: str) -> str:
    return f"spark.delta.logStore.{scheme}.impl"


def _address(lake: str, access: Mapping[str, str]) -> dict[str, str]:
    region = access.get("aws_region")
    address = {"endpoint.region": region} if region else {}
    endpoint = access.get("aws_endpoint_url")
    if endpoint is None:
        return address
    parts = urlsplit(endpoint)
    is_virtual = is_true(access.get("aws_virtual_hosted_style_request", ""))
    # There object_store wants the bucket in the host's name; Hadoop puts it there itself.
    host = parts.netloc.removeprefix(f"{urlsplit(lake).netloc}.") if is_virtual else parts.netloc
    return {
        "endpoint.region": REGION,
        **address,
        "endpoint": f"{parts.scheme}://{host}{parts.path}",
        "path.style.access": str(not is_virtual).lower(),
        "connection.ssl.enabled": str(parts.scheme == "https").lower(),
    }


def _credentials(access: Mapping[str, str], has_token: bool) -> dict[str, str]:
    key, secret = access.get("aws_access_key_id"), access.get("aws_secret_access_key")
    if key is None or secret is None:
        # Errors have the words of the last provider only: the host's would hide why a token gave no keys.
        return {"aws.credentials.provider": ",".join(_PROVIDERS if has_token else (*_PROVIDERS, _HOST_PROVIDER))}
    token = access.get("aws_session_token")
    return {
        "access.key": key,
        "secret.key": secret,
        **({"session.token": token} if token else {}),
        "aws.credentials.provider": _PROVIDERS[0 if token else 1],
    }
