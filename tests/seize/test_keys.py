import pytest
from redis.crc import key_slot

from seize.keys import LIST_KEY, LIST_STAMP_KEY, count_keys, seize_keys, shard_of


@pytest.mark.parametrize("activity_id", [1, 10, 11, 2**63 - 1])
def test_p11_all_keys_of_one_script_lie_in_one_cluster_slot(activity_id):
    slots = {key_slot(key.encode()) for key in (*seize_keys(activity_id), *count_keys(activity_id))}
    assert len(slots) == 1


def test_p11_list_and_its_stamp_lie_in_one_cluster_slot():
    assert key_slot(LIST_KEY.encode()) == key_slot(LIST_STAMP_KEY.encode())


def test_s16_names_are_those_of_the_source_with_the_shard_in_literal_braces():
    keys = seize_keys(21)
    assert keys.stock == "COUPON:RESOURCE:STOCK:{1}"
    assert keys.queue == "QUEUE:COUPON:SEIZE:SYNC:{1}"
    assert keys.holders == "COUPON:SEIZE:LIST:{1}:21"
    assert shard_of(2**63 - 1) == 7
