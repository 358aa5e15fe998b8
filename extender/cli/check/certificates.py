"""When certificates end, without a library for them: an SSL context reads authorities and tells."""

import ssl


def expiries(pem: str) -> list[float]:
    """The ends of the authorities in `pem`, as seconds since 1970. Raises ValueError when there are none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=pem)
    except ssl.SSLError as fault:
        raise ValueError(fault.reason or str(fault)) from fault
    ends = [str(each["notAfter"]) for each in context.get_ca_certs()]
    if not ends:
        raise ValueError("it holds no certificate of an authority")
    return [float(ssl.cert_time_to_seconds(each)) for each in ends]
