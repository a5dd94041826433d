"""The file with the login of Kafka clients, as settings of the clients of Python and of Spark.

It is a properties file with the names of Kafka's Java clients, as Kafka's own tools read it with ``--command-config``.
librdkafka, which Python's clients use, has other names; only this module translates them. Spark's clients get
references to the file instead of its values, so that no value is part of a plan, a log or a page of Spark.

Names of both sides: https://kafka.apache.org/42/configuration/consumer-configs and librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from kappa import properties
from kappa.config import client_file_of
from kappa.errors import ConfigError

SETTING = "KAPPA_KAFKA_CLIENT_FILE"

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")
#: Where clients fetch tokens, to clients of both kinds.
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105  a setting's name
_CREDENTIALS = "sasl.oauthbearer.client.credentials.client."

#: Java's name -> librdkafka's, for settings with the same value.
_SAME = {
    "security.protocol": "security.protocol",
    "sasl.mechanism": "sasl.mechanism",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
    "ssl.key.password": "ssl.key.password",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "sasl.oauthbearer.scope": "sasl.oauthbearer.scope",
    TOKEN_URL: TOKEN_URL,
    f"{_CREDENTIALS}id": "sasl.oauthbearer.client.id",
    f"{_CREDENTIALS}secret": "sasl.oauthbearer.client.secret",
}
#: Settings without a counterpart of their own: they are read together with others, or librdkafka does the same without
#: them.
_READ = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.truststore.password",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.keystore.password",
    "ssl.protocol",
    "ssl.enabled.protocols",
)
_KNOWN = (*_SAME, *_READ)
#: Options of OAUTHBEARER's login module.
_OAUTH = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_JAAS = re.compile(r"\s*[\w.$]+\s+(?:required|requisite|sufficient|optional)\b(?P<options>.*);\s*", re.DOTALL | re.I)
_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""", re.DOTALL)
_OAUTHBEARER = "OAUTHBEARER"
_HANDLER = "sasl.login.callback.handler.class"
_OAUTH_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
_ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="
_PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"


def tool_options(bootstrap_servers: str) -> str:
    """Options with which Kafka's own tools reach these brokers, for a message that names a command."""
    file = client_file_of(bootstrap_servers)
    return f"--bootstrap-server {bootstrap_servers}" + (f" --command-config {quote(file)}" if file else "")


def creator_options(bootstrap_servers: str) -> str:
    """The same for whoever may create topics, whose own file has another login than this one."""
    file = " --command-config admin.properties" if client_file_of(bootstrap_servers) else ""
    return f"--bootstrap-server {bootstrap_servers}{file}"


def for_librdkafka(bootstrap_servers: str) -> dict[str, str]:
    """Settings with which a client of confluent-kafka logs in; empty without a file.

    Raises:
        ConfigError: the file, or one that it names, is missing, malformed, or readable by other users.
    """
    path = client_file_of(bootstrap_servers)
    return _translated(read(path), path) if path else {}


def _lines(value: str) -> str:
    """A value with certificates or a key in PEM on lines of their own, as librdkafka wants them.

    Java takes blanks for the ends of lines too: a properties file that goes on after a backslash has no others.
    """
    if "\n" in value:
        return value
    pem = re.compile(r"(-----BEGIN [^-]+-----)(.*?)(-----END [^-]+-----)\s*", re.DOTALL)
    return pem.sub(lambda part: "\n".join([part[1], *part[2].split(), part[3], ""]), value)


def for_spark(bootstrap_servers: str) -> dict[str, str]:
    """Options of Spark's Kafka source: references to the file, which each JVM reads on its own host.

    Raises:
        ConfigError: as :func:`for_librdkafka`.
    """
    path = client_file_of(bootstrap_servers)
    if not path:
        return {}
    for_librdkafka(bootstrap_servers)  # the JVM's own errors about a wrong file are harder to read
    settings = read(path)
    referred = {key: _reference(path, key) for key in settings}
    if settings.get("sasl.mechanism") == _OAUTHBEARER:
        referred |= _java_login(settings, path)
    providers = {"config.providers": "file", "config.providers.file.class": _PROVIDER}
    return {f"kafka.{key}": value for key, value in (providers | referred).items()}


def java_options(bootstrap_servers: str, options: str) -> str:
    """Options of a JVM, with the address of the server of tokens; one that they name stays.

    Kafka's Java clients fetch tokens only from addresses that an option of their JVM names. A session without the file
    may start: it needs no login unless it reads from Kafka.

    Raises:
        ConfigError: the file is malformed, or other users may read it.
    """
    path = client_file_of(bootstrap_servers)
    url = read(path).get(TOKEN_URL, "") if path and Path(path).is_file() else ""
    return options if not url or _ALLOWED in options else f"{options} {_ALLOWED}{url}".strip()


def _reference(path: str, key: str) -> str:
    return f"${{file:{path}:{key}}}"


def _java_login(settings: Mapping[str, str], path: str) -> dict[str, str]:
    """What Spark's Kafka client needs for tokens besides the file: its version takes credentials from a login only."""
    handler = {} if _HANDLER in settings else {_HANDLER: f"{_OAUTH_PACKAGE}.OAuthBearerLoginCallbackHandler"}
    if "sasl.jaas.config" in settings:
        return handler
    names = {
        "clientId": f"{_CREDENTIALS}id",
        "clientSecret": f"{_CREDENTIALS}secret",
        "scope": "sasl.oauthbearer.scope",
    }
    for key in names.values():
        if set('"\\') & set(settings.get(key, "")):
            raise ConfigError(
                f"{key} in {path} has a quote or a backslash, which Spark's Kafka client does not take there. Write it "
                'as sasl.jaas.config, with a backslash before each: clientSecret="..."',
                path=path,
            )
    options = {option: _reference(path, key) for option, key in names.items() if key in settings}
    return {**handler, "sasl.jaas.config": login("OAuthBearerLoginModule", options)}


def read(path: str) -> dict[str, str]:
    """The settings in a client file.

    Raises:
        ConfigError: it is missing, has an unknown setting, or other users may read it.
    """
    if not path.startswith("/") or re.search(r"[:{}\n]", path):
        raise ConfigError(
            f"{SETTING}={path!r} is not a path with the same meaning in each process. Set it to an absolute "
            "path without ':', '{' and '}'.",
            path=path,
        )
    settings = properties.read_secret(path, SETTING, "Kafka's secrets", sorted(_KNOWN))
    _check_settings(settings, path)
    return settings


def check(settings: Mapping[str, str], where: str) -> None:
    """Check that settings and the files that they name make a login, before they are put where clients read them.

    Args:
        settings: settings of a client file.
        where: their place, for messages.

    Raises:
        ConfigError: one is unknown, malformed or missing, or a file that one names cannot be read.
    """
    _check_settings(settings, where)
    _translated(settings, where)


def _check_settings(settings: Mapping[str, str], path: str) -> None:
    properties.check_names(settings, sorted(_KNOWN), path)
    _check_choice(settings, "security.protocol", _PROTOCOLS, path)
    if settings["security.protocol"].startswith("SASL"):
        _check_choice(settings, "sasl.mechanism", _MECHANISMS, path)


def login(module: str, options: Mapping[str, str]) -> str:
    """The value of ``sasl.jaas.config`` for a login module of Kafka, by its class name without the package."""
    package = "org.apache.kafka.common.security"
    room = {"PlainLoginModule": "plain", "ScramLoginModule": "scram"}.get(module, "oauthbearer")
    pairs = " ".join(f'{key}="{_quoted(value)}"' for key, value in options.items())
    return f"{package}.{room}.{module} required {pairs};"


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _check_choice(settings: Mapping[str, str], key: str, choices: tuple[str, ...], path: str) -> None:
    if settings.get(key) not in choices:
        is_there = f"{key}={settings[key]}" if key in settings else f"no {key}"
        raise ConfigError(f"{path} has {is_there}. Set it to one of {', '.join(choices)}.", key=key)


def _translated(settings: Mapping[str, str], path: str) -> dict[str, str]:
    translation = {_SAME[key]: _lines(value) for key, value in settings.items() if key in _SAME}
    if translation.get("ssl.endpoint.identification.algorithm") == "":  # Java's value for no check of the name
        translation["ssl.endpoint.identification.algorithm"] = "none"
    if settings["security.protocol"].startswith("SASL"):
        translation |= _login(settings, path)
    if settings["security.protocol"].endswith("SSL"):
        translation |= _trust(settings, path) | _identity(settings, path)
    return translation


def _login(settings: Mapping[str, str], path: str) -> dict[str, str]:
    mechanism, jaas = settings["sasl.mechanism"], settings.get("sasl.jaas.config", "")
    parsed = _JAAS.fullmatch(jaas)
    if jaas and parsed is None:
        raise ConfigError(
            f"sasl.jaas.config in {path} is malformed: it is a login module, the word required, options such as "
            f'username="…", and a semicolon. Correct it in {path}.',
            path=path,
        )
    options = {name: _unquoted(*values) for name, *values in _OPTION.findall(parsed["options"] if parsed else "")}
    if mechanism == _OAUTHBEARER:
        if TOKEN_URL not in settings:
            raise ConfigError(f"{path} has no {TOKEN_URL}, which OAUTHBEARER needs. Add the line.", path=path)
        extensions = [f"{k.removeprefix('extension_')}={v}" for k, v in options.items() if k.startswith("extension_")]
        credentials = {_OAUTH[name]: value for name, value in options.items() if name in _OAUTH}
        return (
            credentials
            | {"sasl.oauthbearer.method": "oidc"}
            | ({"sasl.oauthbearer.extensions": ",".join(extensions)} if extensions else {})
        )
    missing = [name for name in ("username", "password") if name not in options]
    if missing:
        raise ConfigError(
            f"sasl.jaas.config in {path} names no {' and no '.join(missing)}, which {mechanism} needs. Correct it in "
            f"{path}.",
            path=path,
        )
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _unquoted(double: str, single: str, bare: str) -> str:
    return re.sub(r"\\(.)", r"\1", double or single, flags=re.DOTALL) or bare


def _trust(settings: Mapping[str, str], path: str) -> dict[str, str]:
    """The certificates that a broker's certificate is checked against; by default those of the system."""
    store = settings.get("ssl.truststore.location")
    if store is None:
        return {}
    content, kind = _store(store, "ssl.truststore", settings, path)
    if kind == "PEM":
        try:
            ssl.create_default_context(cafile=store)
        except ssl.SSLError as error:
            raise _unreadable(store, "ssl.truststore", path, error) from error
        return {"ssl.ca.location": store}
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        certificates = load_pkcs12(content, settings.get("ssl.truststore.password", "").encode()).additional_certs
    except ValueError as error:
        raise _unreadable(store, "ssl.truststore", path, error) from error
    return {"ssl.ca.pem": "".join(one.certificate.public_bytes(Encoding.PEM).decode() for one in certificates)}


def _identity(settings: Mapping[str, str], path: str) -> dict[str, str]:
    """The certificate that a client presents if a broker asks for one."""
    store = settings.get("ssl.keystore.location")
    if store is None:
        return {}
    _, kind = _store(store, "ssl.keystore", settings, path)
    if kind == "PEM":
        return {"ssl.certificate.location": store, "ssl.key.location": store}
    password = {key: value for key, value in settings.items() if key == "ssl.keystore.password"}
    return {"ssl.keystore.location": store} | password


def _store(store: str, which: str, settings: Mapping[str, str], path: str) -> tuple[bytes, str]:
    """The content of a store, and its kind."""
    try:
        content = Path(store).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{which}.location in {path} names {store}, which cannot be read on this host: {error.strerror}. Put the "
            f"file there, or correct the line: ls -l {quote(store)}",
            path=store,
        ) from error
    kind = settings.get(f"{which}.type", "JKS").upper()
    is_pem = b"-----BEGIN " in content
    if content.startswith(b"\xfe\xed\xfe\xed"):
        raise ConfigError(
            f"{store}, {which}.location in {path}, has Java's own format (JKS), which Python's clients cannot read. "
            f"Convert it, and name the new file: keytool -importkeystore -srckeystore {store} -destkeystore "
            f"{Path(store).with_suffix('.p12')} -deststoretype PKCS12",
            path=store,
        )
    if is_pem != (kind == "PEM"):
        kinds = ("PEM", kind) if is_pem else ("PKCS12", "PEM")
        raise ConfigError(
            f"{store}, {which}.location in {path}, contains {kinds[0]}, but {which}.type is {kinds[1]}. Set "
            f"{which}.type={kinds[0]} there.",
            path=store,
        )
    return content, "PEM" if is_pem else "PKCS12"


def _unreadable(store: str, which: str, path: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"{store}, {which}.location in {path}, cannot be read ({error}): it is not such a file, or {which}.password is "
        f"wrong. Check it: keytool -list -keystore {store}",
        path=store,
    )
