import pytest

from txbroker.client.partitioning import by_key, murmur2


@pytest.mark.parametrize(
    ("key", "hashed"),
    [  # of Kafka's own UtilsTest.testMurmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_a_key_hashes_as_in_kafka(key, hashed):
    assert murmur2(key) == hashed & 0xFFFFFFFF


def test_a_negative_hash_is_made_positive_by_its_sign_bit_not_by_its_amount():
    assert by_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7
    assert by_key(b"21", 7) != 973932308 % 7


def test_every_partition_gets_keys():
    assert {by_key(str(number).encode(), 10) for number in range(200)} == set(range(10))
