"""Webhooks: which addresses may be told, and the thread that tells them. Off unless the settings allow it."""

import hashlib
import hmac
import http.client
import ipaddress
import json
import logging
import os
import socket
import ssl
import threading
import time
from urllib.parse import SplitResult, urlsplit

from sqlalchemy.exc import SQLAlchemyError

from app.config import Settings
from app.store import deliveries, leases
from app.store.database import Database
from app.store.ids import new_id
from app.store.tables import Delivery

log = logging.getLogger(__name__)

PERIOD_SECONDS = 5.0
SEND_SECONDS = 5.0
"""From the first packet to the last header of the answer."""
AT_ONCE = 10

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
NAT64 = ipaddress.ip_network("64:ff9b::/96")
GIVEN_OUT = ipaddress.ip_network("2000::/3")
"""All of IPv6 that is public; the rest is of special use, such as the old private fec0::/10, or of none yet."""
EXAMPLES = ipaddress.ip_network("3fff::/20")
"""For documents; Python's own lists do not know it yet."""


class Undelivered(Exception):
    """The message did not arrive; the text says why, and never what the other side answered."""


def refuse(url: str, settings: Settings) -> str | None:
    """Why this address cannot be a webhook here, as far as that is known without asking for its name; None: it can."""
    if not settings.webhooks:
        return "webhooks are off on this server; FEDARENA_WEBHOOKS=true turns them on"
    try:
        parts = _split(url, settings)
    except Undelivered as error:
        return str(error)
    try:
        literal = ipaddress.ip_address((parts.hostname or "").strip("[]"))
    except ValueError:
        return None
    return None if settings.webhook_private or is_public(literal) else _private(literal)


def _split(url: str, settings: Settings) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Undelivered("a webhook must be an address like https://example.org/hook") from None
    schemes = ("https", "http") if settings.webhook_private else ("https",)
    if parts.scheme not in schemes:
        raise Undelivered(
            f"a webhook must start with {' or '.join(f'{s}://' for s in schemes)}, but got {parts.scheme!r}"
        )
    if not parts.hostname or parts.username is not None or parts.password is not None or port == 0:
        raise Undelivered("a webhook must name a host, and no user or password")
    if any(ord(letter) <= 32 or ord(letter) == 127 for letter in url):
        raise Undelivered("a webhook must not contain spaces or control characters")
    return parts


def is_public(address: Address) -> bool:
    """Reachable by everybody: not this machine, its network, a carrier's, or one of these in IPv6 clothes."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is None and address in NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address not in GIVEN_OUT or address in EXAMPLES:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _private(address: Address) -> str:
    return (
        f"{address} is not a public address; FEDARENA_WEBHOOK_PRIVATE=true allows addresses of this machine and of "
        "private networks"
    )


def resolve(host: str, port: int, settings: Settings) -> str:
    """One checked address of the host. A name with a single private address among its addresses is refused."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Undelivered(f"the name {host} is not known") from None
    addresses = [str(entry[4][0]) for entry in found]
    if not settings.webhook_private:
        for text in addresses:
            address = ipaddress.ip_address(text.split("%")[0])
            if not is_public(address):
                raise Undelivered(f"{host}: {_private(address)}")
    return addresses[0]


def signature(secret: str, moment: int, body: bytes) -> str:
    """HMAC-SHA256 over the time, a dot and the body; the time lets a receiver refuse old messages."""
    mac = hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256)
    return f"t={moment},v1={mac.hexdigest()}"


def send(row: Delivery, settings: Settings) -> None:
    """One attempt; raises Undelivered. Connects to the address that was checked and follows no redirect."""
    if (problem := refuse(row.url, settings)) is not None:
        raise Undelivered(problem)
    parts = _split(row.url, settings)
    host, secure = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    address = resolve(host, port, settings)
    body = json.dumps({"id": row.id, **row.body}, ensure_ascii=False, separators=(",", ":")).encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "FedArena",
        "X-FedArena-Event": row.event,
        "X-FedArena-Delivery": row.id,
        "X-FedArena-Signature": signature(settings.webhook_secret, int(time.time()), body),
    }
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        status = _post(address, host, port, secure, target, body, headers)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Undelivered(f"no answer from {host} ({type(error).__name__})") from None
    if not 200 <= status < 300:
        raise Undelivered(f"{host} answered with status {status}")


def _post(address: str, host: str, port: int, secure: bool, target: str, body: bytes, headers: dict[str, str]) -> int:
    """The status alone: nothing else of the answer is read."""
    line = _Line(socket.create_connection((address, port), timeout=SEND_SECONDS))
    # the time-out of a socket begins anew with every packet; this one does not
    watchdog = threading.Timer(SEND_SECONDS, line.cut)
    watchdog.daemon = True
    watchdog.start()
    try:
        if secure:
            line.secure(host)
        exchange = http.client.HTTPConnection(host, port)
        exchange.sock = line.socket
        exchange.request("POST", target, body, headers)
        return exchange.getresponse().status
    finally:
        watchdog.cancel()
        line.socket.close()


class _Line:
    """A connection that another thread may cut, also while TLS is being agreed."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def secure(self, host: str) -> None:
        context = ssl.create_default_context()
        wrapped = context.wrap_socket(self.socket, server_hostname=host, do_handshake_on_connect=False)
        self.socket = wrapped
        wrapped.do_handshake()

    def cut(self) -> None:
        try:
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)  # an SSL socket's own would first take leave
        except OSError as error:
            log.debug("the connection of a webhook was closed already: %s", error)


class Postman:
    """A thread of the web process, of its own because a slow receiver must not hold up the queue."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._name = f"web-{os.getpid()}@{socket.gethostname()}-{new_id()}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)

    def start(self) -> None:
        if self._settings.webhooks:
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2 * SEND_SECONDS)

    def tick(self) -> int:
        """Write down what has happened and send what is due; returns how many messages arrived."""
        with self._database.write() as session:
            # long enough for a whole round of slow receivers
            if not leases.acquire(session, "webhooks", self._name, AT_ONCE * SEND_SECONDS + 3 * PERIOD_SECONDS):
                return 0
            deliveries.write_down(session)
        with self._database.read() as session:
            waiting = deliveries.due(session, AT_ONCE)
        return sum(self._deliver(row) for row in waiting if not self._stop.is_set())

    def _deliver(self, row: Delivery) -> bool:
        error = None
        try:
            send(row, self._settings)
        except Undelivered as reason:
            error = str(reason)
            log.warning("webhook message %s: %s", row.id, error)
        with self._database.write() as session:
            deliveries.note(session, row.id, error)
        return error is None

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_SECONDS):
            try:
                self.tick()
            except SQLAlchemyError as error:
                log.warning("the store is out of reach, trying again: %s", str(error).splitlines()[0])
            except Exception:  # whatever it is: without this thread nobody is told anything until the next start
                log.exception("webhooks continue after an error")
