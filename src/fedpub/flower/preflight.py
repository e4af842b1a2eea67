"""Why a site cannot connect to its coordinator, in one sentence.

The check takes the same path as messages: the same library, through the same proxy.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from fedpub.errors import FedpubError
from fedpub.flower.gate import AHEAD, ASK, BEHIND
from fedpub.flower.keys import fingerprint

# OpenSSL's codes of certificate errors.
NOT_YET, EXPIRED, OTHER_NAME, OTHER_ADDRESS = 9, 10, 62, 64

Kind = TypeVar("Kind", bound=BaseException)


class UnreachableError(FedpubError):
    """The coordinator does not answer now; it may later."""


def check_coordinator(address: str, ca: Path, public_line: str, timeout: float = 10) -> str:
    """The name under which the coordinator at HOST:PORT admits this key; an error that says why it does not."""
    url = _url(address)
    context = context_of(ca)
    asked = time.time()
    try:
        response = _ask(url, context, public_line, timeout)
    except (httpx.HTTPError, UnicodeError) as error:
        raise _explained(error, address, ca, timeout) from error
    status = _status(response, address)
    if not status["admitted"]:
        raise FedpubError(
            f"the coordinator at {address} does not admit this site's key, {fingerprint(public_line)}; "
            "give the site's .pub file to the coordinator's operator, who runs `fedpub coordinator admit`"
        )
    ahead = max(asked - status["time"], 0) or min(time.time() - status["time"], 0)
    if not -BEHIND < ahead < AHEAD:
        way = "ahead of" if ahead > 0 else "behind"
        raise FedpubError(
            f"this machine's clock is {abs(ahead):.0f} seconds {way} that of the coordinator at {address}, "
            "which refuses signatures of another time; set both clocks"
        )
    return str(status["site"])


def _url(address: str) -> str:
    try:
        parts = urlsplit(f"//{address}")
        if parts.hostname and parts.port and address == parts.netloc and parts.username is None:
            return str(httpx.URL(f"https://{address}{ASK}"))
    except (ValueError, httpx.InvalidURL):
        pass
    raise FedpubError(f"the coordinator's address {address!r} is not HOST:PORT, such as fl.example.org:9443")


def context_of(ca: Path) -> ssl.SSLContext:
    wanted = "the ca.pem that the coordinator gave you"
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # which trusts no other authority
        context.load_verify_locations(cadata=ca.read_text(encoding="ascii"))
        return context
    except ssl.SSLError as error:  # an OSError, too
        raise FedpubError(f"{ca} is not a certificate; it should be {wanted}") from error
    except OSError as error:
        raise FedpubError(f"{ca} cannot be read ({error.strerror}); it should be {wanted}") from error
    except ValueError as error:
        raise FedpubError(f"{ca} is not a certificate; it should be {wanted}") from error


def _ask(url: str, context: ssl.SSLContext, public_line: str, timeout: float) -> httpx.Response:
    with httpx.Client(verify=context, timeout=timeout) as client:
        return client.get(url, params={"key": fingerprint(public_line)})


def _status(response: httpx.Response, address: str) -> dict[str, Any]:
    try:
        status = response.json()
        if response.status_code == 200 and {"admitted", "site", "time"} <= status.keys():
            return {**status, "time": float(status["time"])}
    except (ValueError, TypeError, AttributeError):
        pass
    raise _stranger(address, f"its answer to {ASK} has status {response.status_code}")


def _stranger(address: str, why: str) -> FedpubError:
    return FedpubError(f"what answers at {address} is not a fedpub coordinator ({why}); check host and port")


def _explained(error: Exception, address: str, ca: Path, timeout: float) -> FedpubError:
    if isinstance(error, httpx.ProxyError):
        return FedpubError(f"the proxy in HTTPS_PROXY does not connect to {address} ({error}); allow it there")
    if certificate := _cause(error, ssl.SSLCertVerificationError):
        return _certificate_error(certificate, address, ca, timeout)
    if secured := _cause(error, ssl.SSLError):
        return _stranger(address, f"TLS failed: {secured.reason or secured}")
    if _cause(error, socket.gaierror) or isinstance(error, UnicodeError):  # the latter for names such as a..b
        return FedpubError(f"the name in {address} cannot be resolved; check its spelling and this machine's DNS")
    if _cause(error, ConnectionRefusedError):
        return UnreachableError(
            f"{address} refuses connections; check the port, and whether the coordinator has been started"
        )
    if isinstance(error, httpx.TimeoutException):
        return UnreachableError(
            f"{address} did not answer within {timeout:g} seconds; check the address and any firewall in between"
        )
    if isinstance(error, httpx.ConnectError):
        return UnreachableError(f"{address} cannot be reached ({error}); check the address and this machine's network")
    return _stranger(address, str(error))


def _certificate_error(error: ssl.SSLCertVerificationError, address: str, ca: Path, timeout: float) -> FedpubError:
    whose = f"the certificate of the coordinator at {address}"
    if error.verify_code == EXPIRED:
        return FedpubError(f"{whose} has expired; ask for a new one, unless this machine's clock is wrong")
    if error.verify_code == NOT_YET:
        return FedpubError(f"{whose} is not valid yet; correct this machine's clock, or the coordinator's")
    if error.verify_code in (OTHER_NAME, OTHER_ADDRESS):
        names = _names(address, ca, timeout)
        listed = f"is for {', '.join(names)}" if names else "is for another host"
        return FedpubError(f"{whose} {listed}; connect to one of its names, or ask for one for this host")
    return FedpubError(
        f"{whose} was not signed by {ca} ({error.verify_message}); use the ca.pem of this coordinator; if it is that "
        "one already, another machine answers in the coordinator's place"
    )


def _names(address: str, ca: Path, timeout: float) -> list[str]:
    """The hosts of the certificate: asked again without comparing the name; everything else is verified as before."""
    context = context_of(ca)
    context.check_hostname = False
    try:
        with (
            httpx.Client(verify=context, timeout=timeout) as client,
            client.stream("GET", _url(address)) as response,
        ):
            found = response.extensions["network_stream"].get_extra_info("ssl_object").getpeercert()
    except httpx.HTTPError:
        return []
    return [value for _, value in found.get("subjectAltName", ())]


def _cause(error: BaseException, kind: type[Kind]) -> Kind | None:
    return next((one for one in _chain(error) if isinstance(one, kind)), None)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
