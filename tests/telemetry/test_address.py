"""Addresses as people write them."""

from __future__ import annotations

import pytest

from healthd.telemetry.address import Address, AddressError, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9400", Address("127.0.0.1", 9400)),
        ("localhost:0", Address("localhost", 0)),
        (":9400", Address(None, 9400)),
        ("[::1]:9400", Address("::1", 9400)),
        ("[fe80::1%eth0]:1", Address("fe80::1%eth0", 1)),
    ],
)
def test_an_address_is_read_and_written_alike(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    ["", "9400", "localhost", "::1:9400", "[::1]", "[]:1", "http://x:1", "x:y", "x:-1", "a b:1", "x:65536", "x:٣"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(AddressError, match="is not an address"):
        parse_address(text)
