"""Tracking URIs: the one that is meant, absolute, with an installed driver, password hidden."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from mlflow.tracking import get_tracking_uri, is_tracking_uri_set
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from trainperf_mlflow.errors import StoreError

DEFAULT_FILE = "mlflow.db"
ARTIFACT_FOLDER = "mlruns"
MASK = "***"
SERVER_DATABASES = ("postgresql", "mysql", "mssql")
DATABASES = ("sqlite", *SERVER_DATABASES)
_DEFAULT_PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}
_KNOWN = "sqlite:////absolute/mlflow.db, http(s)://host:port, postgresql://user@host/database"


def resolve_uri(tracking_uri: str | None) -> str:
    """The absolute URI of the store that is meant.

    The one given, else the one set in MLflow or in MLFLOW_TRACKING_URI, else
    ``mlflow.db`` in the current folder, which is MLflow's own default.

    Raises:
        StoreError: the URI cannot be used, with the remedy.
    """
    uri = tracking_uri or (get_tracking_uri() if is_tracking_uri_set() else "")  # type: ignore[no-untyped-call]
    if not uri:
        _refuse_old_file_store(Path.cwd())
        return sqlite_uri(Path.cwd() / DEFAULT_FILE)
    scheme = scheme_of(uri)
    if scheme == "sqlite":
        return _absolute_sqlite(uri)
    if scheme in SERVER_DATABASES:
        return _with_driver(uri)
    if scheme in ("http", "https"):
        if not _hostname(uri):
            raise StoreError(f"tracking URI {masked(uri)!r} names no host; write {_KNOWN}")
        return uri
    if scheme in ("", "file"):
        if os.environ.get("MLFLOW_ALLOW_FILE_STORE", "").lower() in ("true", "1"):
            return uri if scheme else Path(uri).absolute().as_uri()
        raise StoreError(
            f"tracking URI {masked(uri)!r} is a folder, and MLflow no longer opens file stores; "
            f"use a database or a server: {_KNOWN}"
        )
    if scheme.startswith("databricks"):
        return uri
    raise StoreError(f"tracking URI {masked(uri)!r} has an unknown scheme {scheme!r}; use {_KNOWN}")


def scheme_of(uri: str) -> str:
    """The scheme without a driver, in lower case.

    >>> scheme_of("postgresql+psycopg2://host/db"), scheme_of("mlruns")
    ('postgresql', '')
    """
    match = re.match(r"([A-Za-z][\w+.-]*):", uri)
    if match is None:
        return "databricks" if uri == "databricks" else ""
    scheme = match[1].lower().partition("+")[0]
    return "postgresql" if scheme == "postgres" else scheme


def masked(text: str) -> str:
    """The text without the passwords of URIs in it.

    >>> masked("postgresql://me:se@cret@host/db?password=x")
    'postgresql://me:***@host/db?password=***'
    """
    text = re.sub(r"(//[^/\s:@?#]*):[^\s/]*@", rf"\1:{MASK}@", text)
    return re.sub(r"(?i)((?:password|passwd|pwd)=)[^&\s]+", rf"\1{MASK}", text)


def has_password(uri: str) -> bool:
    return masked(uri) != uri


def without_passwords(text: str, uri: str) -> str:
    """A message of a driver or of MLflow, without the URI's password in any spelling."""
    found = re.search(r"//[^/\s:@?#]*:([^\s/]*)@", uri)
    for spelling in {found[1], unquote(found[1]), quote(found[1], safe="")} if found else set():
        if len(spelling) > 2:
            text = text.replace(spelling, MASK)
    return masked(text)


def sqlite_uri(path: Path) -> str:
    """The URI of an sqlite file; only what a URI would misread is escaped."""
    return "sqlite:///" + str(path.absolute()).replace("%", "%25").replace("?", "%3F")


def sqlite_path(uri: str) -> Path | None:
    """The file of an sqlite URI, or None for another store."""
    if scheme_of(uri) != "sqlite":
        return None
    return Path(make_url(uri).database or "")


def address(uri: str) -> tuple[str, int] | None:
    """Host and port that a store listens on, or None where it needs no network."""
    scheme = scheme_of(uri)
    host = _hostname(uri)
    if scheme not in _DEFAULT_PORTS or not host:
        return None
    try:
        port = urlsplit(uri).port
    except ValueError:
        raise StoreError(f"tracking URI {masked(uri)!r} has no usable port; use {_KNOWN}") from None
    return host, port or _DEFAULT_PORTS[scheme]


def _hostname(uri: str) -> str | None:
    try:
        return urlsplit(uri).hostname
    except ValueError as error:
        raise StoreError(f"tracking URI {masked(uri)!r}: {error}; use {_KNOWN}") from None


def _refuse_old_file_store(folder: Path) -> None:
    # The same test as MLflow's own: experiments of a file store have a numeric
    # folder with a meta.yaml in it; the artifacts of an sqlite store have none.
    old = [
        path.parent
        for path in (folder / ARTIFACT_FOLDER).glob("*/meta.yaml")
        if path.parent.name.isdigit()
    ]
    if old:
        raise StoreError(
            f"{str(folder / ARTIFACT_FOLDER)!r} is an old MLflow file store, which MLflow no "
            "longer opens and would take as the default here; move that folder away, convert "
            "it with 'mlflow migrate-filestore', or name a store: "
            f"MLFLOW_TRACKING_URI={sqlite_uri(folder / DEFAULT_FILE)}"
        )


def _absolute_sqlite(uri: str) -> str:
    try:
        url = make_url(uri)
    except (ArgumentError, ValueError):
        raise StoreError(f"tracking URI {uri!r} is malformed; write {_KNOWN}") from None
    path = url.database
    if url.host or not path or path == ":memory:" or path.startswith("file:"):
        raise StoreError(
            f"tracking URI {uri!r} is no file that outlives the command; "
            "write sqlite:////absolute/mlflow.db"
        )
    query = uri.partition("?")[2]
    return sqlite_uri(Path(path)) + (f"?{query}" if query else "")


def _with_driver(uri: str) -> str:
    """The URI with a driver that is installed.

    SQLAlchemy 2.1 takes psycopg 3 for a plain ``postgresql://``, earlier ones psycopg2.
    """
    uri = re.sub(r"^postgres(?=[:+])", "postgresql", uri, flags=re.IGNORECASE)
    spellings = [uri]
    if uri.startswith("postgresql:"):
        spellings += [f"postgresql+{name}{uri[10:]}" for name in ("psycopg2", "psycopg")]
    problem = ""
    for spelling in spellings:
        try:
            make_url(spelling).get_dialect().import_dbapi()
        except ImportError as error:
            problem = problem or str(error)
        except (ArgumentError, NoSuchModuleError, ValueError) as error:
            why = without_passwords(str(error), uri)
            raise StoreError(
                f"tracking URI {masked(uri)!r} is malformed ({why}); write {_KNOWN}"
            ) from None
        else:
            return spelling
    remedy = (
        "pip install 'trainperf-mlflow[postgres]'"
        if scheme_of(uri) == "postgresql"
        else "install the database's Python driver"
    )
    raise StoreError(f"no driver for {masked(uri)!r} ({problem}); {remedy}")
