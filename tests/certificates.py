"""Certificates that tests make for themselves."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificate(directory: Path, *names: str, days: int = 2) -> tuple[Path, Path]:
    """Make a certificate and its key, in PEM files, for names such as ``DNS:localhost`` and ``IP:127.0.0.1``."""
    cert, key = directory / "cert.pem", directory / "key.pem"
    subject = ["-subj", "/CN=queue", "-addext", f"subjectAltName={','.join(names)}"]
    files = ["-keyout", str(key), "-out", str(cert)]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", str(days), *subject, *files]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key
