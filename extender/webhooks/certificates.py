"""Self-signed certificates of Muster.

Each certificate has its own CA. The key of the CA is discarded after it has signed. So the stored files are
enough to serve, but cannot sign other certificates.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from extender.api.objects.base import Wire

_MAX_SKEW = timedelta(minutes=5)  # certificates are valid from this time before now, as clocks differ


class Pair(Wire, frozen=True):
    """Certificate with its key and the CA that has signed it, all in PEM."""

    certificate: bytes
    key: bytes
    authority: bytes


class Validity(NamedTuple):
    """Validity period of a certificate, in seconds since the epoch."""

    begin: float
    end: float

    def covers(self, now: float) -> bool:
        return self.begin <= now < self.end


class Unreadable(ValueError):
    """Error: the bytes are not a certificate or a key."""


def make_pair(names: Iterable[str], lifetime: float, now: float) -> Pair:
    """Return a pair that is valid for `lifetime` seconds from `now`, in seconds since the epoch.

    Names may be IP addresses.
    """
    authority = _Authority("kube-muster webhook CA", lifetime, now)
    return authority.pair("kube-muster webhook", ExtendedKeyUsageOID.SERVER_AUTH, names)


def make_mutual(names: Iterable[str], lifetime: float, now: float) -> tuple[Pair, Pair]:
    """Return a certificate for a server with these names, and a certificate for its only client.

    One CA has signed both certificates.
    """
    authority = _Authority("kube-muster CA", lifetime, now)
    return (
        authority.pair("kube-muster", ExtendedKeyUsageOID.SERVER_AUTH, names),
        authority.pair("kube-scheduler", ExtendedKeyUsageOID.CLIENT_AUTH),
    )


class _Authority:
    """CA that exists only as long as this object. Its key is not written anywhere."""

    def __init__(self, name: str, lifetime: float, now: float) -> None:
        self._begin, self._end = _as_datetime(now) - _MAX_SKEW, _as_datetime(now + lifetime)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"{name} {x509.random_serial_number():x}"[:60])
        builder = self._builder(self._name, self._key)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(is_authority=True), critical=True)
        self._certificate = _pem(builder.sign(self._key, hashes.SHA256()))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        """Return a builder with the key identifiers of RFC 5280, which Python requires since version 3.13."""
        serial, public = x509.random_serial_number(), key.public_key()
        builder = x509.CertificateBuilder(self._name, subject, public, serial, self._begin, self._end)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return builder.add_extension(issuer, critical=False)

    def pair(self, name: str, purpose: x509.ObjectIdentifier, names: Iterable[str] = ()) -> Pair:
        """Return a new certificate with its key, signed by this CA."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_name(name), key)
        if alternatives := [_alternative_name(name) for name in names]:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        builder = builder.add_extension(_usage(is_authority=False), critical=True)
        form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        certificate = _pem(builder.sign(self._key, hashes.SHA256()))
        return Pair(certificate, key.private_bytes(*form), self._certificate)


def has_signed(authority: bytes, certificate: bytes, key: bytes) -> bool:
    """Return whether the key belongs to the certificate, and the CA has signed the certificate.

    Raises:
        Unreadable: An argument cannot be read.
    """
    return _has_issued(_read(authority), _read(certificate)) and is_key_of(certificate, key)


def is_key_of(certificate: bytes, key: bytes) -> bool:
    """Return whether the key belongs to the certificate.

    Raises:
        Unreadable: An argument cannot be read.
    """
    try:
        private_key = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as fault:
        raise Unreadable(str(fault)) from fault
    return private_key.public_key() == _read(certificate).public_key()


def is_trusted(chain: bytes, bundle: bytes) -> bool:
    """Return whether a client that trusts the bundle trusts the first certificate of the chain.

    Both are in PEM.

    Raises:
        Unreadable: An argument cannot be read.
    """
    (certificate, *intermediates), roots = _read_all(chain), _read_all(bundle)
    while not any(certificate == root or _has_issued(root, certificate) for root in roots):
        issuer = next((issuer for issuer in intermediates if _has_issued(issuer, certificate)), None)
        if issuer is None:
            return False
        intermediates.remove(issuer)
        certificate = issuer
    return True


def split_bundle(bundle: bytes) -> tuple[bytes, ...]:
    """Return the certificates in a bundle, each in PEM.

    Raises:
        Unreadable: The bundle cannot be read.
    """
    return tuple(map(_pem, _read_all(bundle)))


def expiry_of(certificate: bytes) -> float:
    """Return the time when a certificate expires, in seconds since the epoch.

    Raises:
        Unreadable: The certificate cannot be read.
    """
    return validity_of(certificate).end


def validity_of(certificate: bytes) -> Validity:
    """Return the validity period of a certificate.

    Raises:
        Unreadable: The certificate cannot be read.
    """
    parsed = _read(certificate)
    return Validity(parsed.not_valid_before_utc.timestamp(), parsed.not_valid_after_utc.timestamp())


def host_names(certificate: bytes) -> frozenset[str]:
    """Return the host names and IP addresses for which a certificate is valid.

    Raises:
        Unreadable: The certificate cannot be read.
    """
    extensions = _read(certificate).extensions
    try:
        alternatives = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(str(name.value) for name in alternatives)


def _read(certificate: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(certificate)
    except ValueError as fault:
        raise Unreadable(str(fault)) from fault


def _read_all(bundle: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(bundle)
    except ValueError as fault:
        raise Unreadable(str(fault)) from fault


def _has_issued(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    """Return whether the CA has signed the certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    """Return the key usage of a CA if `is_authority` is true, else of a server or client."""
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _alternative_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _as_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
