"""The embedded API server refuses what is in the table of refusals, and names the fields that it says.

A real server is asked the same in tests/e2e/test_api_parity.py.
"""

from random import Random

import pytest

from extender.apimachinery.errors import StatusError
from extender.apimachinery.service import Service
from extender.apimachinery.store import Store
from tests.rows import each_of
from tests.sim.refusals import Refusal, named_in, refusals


@pytest.fixture(scope="module")
def service() -> Service:
    return Service(Store(), Random(0))


@each_of(*refusals())
def test_an_object_that_a_real_server_refuses_is_refused_with_its_fields(
    refusal: Refusal, *, service: Service
) -> None:
    with pytest.raises(StatusError) as refused:
        service.create(refusal.kind, "", refusal.body)
    assert refused.value.code == (422 if refusal.fields else 400)
    assert named_in(refused.value.status()) == refusal.fields


def test_every_object_of_the_table_is_taken_without_its_change(service: Service) -> None:
    for base in {refusal.name.partition(":")[0]: refusal for refusal in refusals()}.values():
        assert service.create(base.kind, "", base.original)["metadata"]["name"] == "bad"
