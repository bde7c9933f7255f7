"""Opening message files on executors: the journal's storage options in the form of `pyarrow.fs` (DESIGN 15.14).

The journal writes through Rust's object_store, executors read through Arrow. An option that only one of them understood
would make a read use other settings than the write, so an option without a counterpart here is refused when the source is
loaded. Absent options mean each library's default credential chain.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from spark_queue.errors import ConfigError, JournalError

#: Options that only writing needs, so that a read is the same without them.
_WRITE_ONLY = frozenset({"aws_conditional_put", "conditional_put", "aws_copy_if_not_exists", "copy_if_not_exists"})

_S3 = {
    "access_key_id": "access_key",
    "secret_access_key": "secret_key",
    "session_token": "session_token",
    "token": "session_token",
    "region": "region",
    "default_region": "region",
    "endpoint": "endpoint",
    "endpoint_url": "endpoint",
    "allow_http": "allow_http",
    "virtual_hosted_style_request": "force_virtual_addressing",
    "skip_signature": "anonymous",
}

_AZURE = {
    "account_name": "account_name",
    "account_key": "account_key",
    "access_key": "account_key",
    "master_key": "account_key",
    "sas_key": "sas_token",
    "sas_token": "sas_token",
}

_GCS = {"service_account": "service_account", "service_account_path": "service_account"}


def _with_prefixes(options: Mapping[str, str], *prefixes: str) -> dict[str, str]:
    return {prefix + name: target for name, target in options.items() for prefix in ("", *prefixes)}


_SUPPORTED = {
    "s3": _with_prefixes(_S3, "aws_"),
    "azure": _with_prefixes(_AZURE, "azure_", "azure_storage_"),
    "gcs": _with_prefixes(_GCS, "google_"),
    "file": {},
}

_SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gcs", **dict.fromkeys(("az", "azure", "adl", "abfs", "abfss"), "azure")}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorFiles:
    """The message files of one message type; picklable, opens nothing at construction."""

    #: URI or local path of the message table.
    root: str
    #: Storage options, without a prefix; they may hold secrets.
    options: Mapping[str, str] = field(repr=False)

    def check(self) -> None:
        """Refuse options that cannot be passed on."""
        supported = _SUPPORTED[_store(self.root)]
        for option in self.options:
            if option.lower() not in supported and option.lower() not in _WRITE_ONLY:
                reason = "readers of message files cannot use it, so reads and writes would have different settings."
                if not supported:
                    reason = f"'{self.root}' is a local path, which is read without any."
                names = ", ".join(sorted(supported)) or "none"
                raise ConfigError("STORAGE_OPTION_UNSUPPORTED", option=option, reason=reason, supported=names)

    def opener(self) -> Callable[[str], pa.NativeFile]:
        """Return a function that opens a file by its path relative to the table.

        Opening raises JournalError MESSAGE_FILE_MISSING where the store does not give the file.
        """
        file_system, base = _connect(self.root, self.options)

        def open_file(path: str) -> pa.NativeFile:
            try:
                return file_system.open_input_file(f"{base}/{unquote(path)}")
            except OSError as reason:
                raise JournalError("MESSAGE_FILE_MISSING", file=path, path=self.root, reason=f"{reason}.") from reason

        return open_file

    def trouble(self, path: str, reason: Exception) -> JournalError:
        """Make the error of a file that was opened and cannot be read: of damage, or of a disk or a network that fails.

        A disk's failure has a number, and an error of Arrow's decoding has none; of an object store neither does.
        """
        is_damage = not isinstance(reason, OSError) or (reason.errno is None and _store(self.root) == "file")
        code = "MESSAGE_FILE_CORRUPT" if is_damage else "MESSAGE_FILE_MISSING"
        return JournalError(code, file=path, path=self.root, reason=f"{str(reason).rstrip('.')}.")


def _store(root: str) -> str:
    scheme = urlsplit(root).scheme if "://" in root else "file"
    if scheme == "file":
        return "file"
    if scheme not in _SCHEMES:
        supported = ", ".join(["file", *_SCHEMES])
        raise ConfigError("BAD_VALUE", key="journal", where="the options", value=root, expected=f"a path or a URI of {supported}")
    return _SCHEMES[scheme]


def _connect(root: str, options: Mapping[str, str]) -> tuple[fs.FileSystem, str]:
    store = _store(root)
    supported = _SUPPORTED[store]
    given = {supported[name.lower()]: value for name, value in options.items() if name.lower() in supported}
    parts = urlsplit(root)
    if store == "file":
        return fs.LocalFileSystem(use_mmap=True), unquote(parts.path) if parts.scheme == "file" else root
    path = parts.path.strip("/")
    if store == "s3":
        return _s3(given), f"{parts.netloc}/{path}"
    if store == "gcs":
        return _gcs(given), f"{parts.netloc}/{path}"
    container, _, host = parts.netloc.partition("@")
    return _azure(given, host), f"{container}/{path}"


def _s3(given: dict[str, str]) -> fs.FileSystem:
    # Without http allowed, an endpoint without a scheme is reached by https, as object_store does.
    given.pop("allow_http", None)
    arguments: dict[str, Any] = {name: value for name, value in given.items() if name != "endpoint"}
    for flag in ("force_virtual_addressing", "anonymous"):
        if flag in arguments:
            arguments[flag] = arguments[flag].lower() == "true"
    endpoint = urlsplit(given.get("endpoint", os.environ.get("AWS_ENDPOINT_URL", "")))
    if endpoint.netloc:
        arguments.update(endpoint_override=endpoint.netloc, scheme=endpoint.scheme)
    return fs.S3FileSystem(**arguments)


def _azure(given: dict[str, Any], host: str) -> fs.FileSystem:
    # abfss URIs name the account in the host, as in container@account.dfs.core.windows.net.
    account = given.pop("account_name", None) or host.partition(".")[0] or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    return fs.AzureFileSystem(account_name=account, **given)


def _gcs(given: dict[str, str]) -> fs.FileSystem:
    # Arrow takes a service account's key file from the environment only.
    if "service_account" in given:
        os.environ["GOOGLE_APPLICATION_CREDENTIALS"] = given["service_account"]
    return fs.GcsFileSystem()
