"""Tutti with TLS between hosts: certificates, and a `tutti` whose agents demand them."""

import pathlib
import shlex
import shutil
import subprocess

HOSTS_MAX = 8
FLAGS = "--tls=require --tls-dir="


def openssl(command: str, folder: pathlib.Path | None = None) -> str:
    """What it prints."""
    done = subprocess.run(["openssl", *shlex.split(command)], cwd=folder, capture_output=True,
                          text=True)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {command} failed:\n{done.stderr}")
    return done.stdout


def make_certificates(folder: pathlib.Path) -> None:
    """An authority and one certificate for all hosts, as docs/install.md makes them."""
    key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    names = [f"DNS:{chr(ord('a') + host)}" for host in range(HOSTS_MAX)]
    names += [f"IP:10.77.0.{host + 1}" for host in range(HOSTS_MAX)]
    openssl(f"req -x509 {key} -days 1 -subj '/CN=authority' -keyout ca.key -out ca.crt", folder)
    openssl(f"req {key} -subj '/CN=host' -addext subjectAltName={','.join(names)} "
            "-addext extendedKeyUsage=serverAuth,clientAuth -keyout tls.key -out host.csr", folder)
    openssl("x509 -req -in host.csr -CA ca.crt -CAkey ca.key -CAcreateserial "
            "-copy_extensions copyall -days 1 -out tls.crt", folder)


def secured_tutti(bin_folder: pathlib.Path, scratch: pathlib.Path) -> pathlib.Path:
    """A copy of `tutti`, which starts the `tuttid` beside it: one that adds TLS's flags."""
    folder = scratch / "secured"
    folder.mkdir()
    make_certificates(folder)
    tuttid = folder / "tuttid"
    tuttid.write_text(f'#!/bin/sh\nexec {shlex.quote(str(bin_folder / "tuttid"))} "$@" '
                      f"{FLAGS}{shlex.quote(str(folder))}\n")
    tuttid.chmod(0o755)
    return pathlib.Path(shutil.copy(bin_folder / "tutti", folder))


def aead_bytes_per_s() -> float:
    """What a core encrypts as TLS does, while another does the same: records of 16 KiB, each with a
    nonce and a tag."""
    text = openssl("speed -mr -elapsed -aead -evp aes-128-gcm -bytes 16384 -seconds 1 -multi 2")
    return float(text.strip().splitlines()[-1].rsplit(":", 1)[1]) / 2
