"""The ways to sell, on a tiny scale: right ones sell exactly the stock, wrong ones are seen to be wrong."""

from collections.abc import Callable, Iterator

import pytest
from services import PATIENCE_S, wait_until

from bench import crowd
from bench.crowd import Pressed, Sale, database_connect, sell
from bench.strategies import Sold, sold_count, summary
from bench.ways import WAYS, redis_lock, stock_lay_out, tables_create, tables_drop
from seize import store

pytestmark = pytest.mark.django_db(transaction=True)

STOCK, SHOPPERS = 20, 60


@pytest.fixture
def database(monkeypatch) -> Iterator[object]:
    monkeypatch.setattr(crowd, "READY_SECONDS", PATIENCE_S)
    connection = database_connect()
    yield connection
    tables_drop(connection)
    connection.close()


def sale(name: str, database: object, *, stock: int = STOCK) -> Sold:
    """Both halves of the crowd in this process, in new tables."""
    tables_drop(database)
    tables_create(database)
    stock_lay_out(activity_id=1, stock=stock, database=database, redis=store.client())
    done = sell(Sale(name, activity_id=1, shoppers=SHOPPERS, halves=2))
    assert done.fault == ""
    return sold_count([done], stock=stock, presses=2 * SHOPPERS)


def harmful_sale(name: str, database: object, *, harm: Callable[[Sold], int]) -> Sold:
    """The first sale that does harm: that each does is no promise."""
    sales: list[Sold] = []

    def does_harm() -> bool:
        sales.append(sale(name, database))
        return harm(sales[-1]) > 0

    wait_until(does_harm, what="a sale that does harm")
    return sales[-1]


@pytest.mark.parametrize("name", ["lua", "redis_lock", "cas", "pessimistic", "in_process_lock"])
def test_right_ways_sell_the_stock_once_and_one_coupon_a_shopper(name, database, monkeypatch):
    monkeypatch.setitem(redis_lock.__kwdefaults__, "lease_ms", 3_600_000)  # however long a thread stands still
    sold = sale(name, database)
    assert (sold.wins, sold.oversold, sold.duplicates) == (STOCK, 0, 0)


def test_s11_decr_sells_the_stock_once_and_forgets_who_pressed(database):
    sold = sale("decr", database, stock=SHOPPERS + STOCK)  # more than one each: somebody gets two whoever is first
    assert (sold.wins, sold.oversold) == (SHOPPERS + STOCK, 0)
    assert sold.duplicates >= STOCK


@pytest.mark.controls
def test_s13_control_without_a_lock_the_crowd_of_the_benchmark_is_oversold(record_property, database):
    sold = harmful_sale("naive", database, harm=lambda sold: sold.oversold)
    record_property("harm", f"without any lock, sold of {STOCK}: {sold.wins}")


@pytest.mark.controls
def test_s10_control_with_a_lock_that_expires_early_the_crowd_is_oversold(record_property, database):
    sold = harmful_sale("redis_lock_short", database, harm=lambda sold: sold.oversold + sold.duplicates)
    record_property("harm", f"with a lock that expires too early, sold of {STOCK}: {sold.wins}")


def test_wins_duplicates_and_speed_are_counted_over_all_processes():
    done = [Pressed([1, 2, 3], retries=2, began_s=10.0, ended_s=12.0), Pressed([3], began_s=10.5, ended_s=14.0)]
    assert sold_count(done, stock=3, presses=40) == Sold(wins=4, oversold=1, duplicates=1, rps=10.0, retries=2)


def test_summary_tells_the_worst_harm_and_the_median_speed():
    sales = [Sold(20, 0, 0, 30.0, 4), Sold(23, 3, 1, 10.0, 0), Sold(20, 0, 0, 20.0, 9)]
    assert summary(sales) == Sold(wins=23, oversold=3, duplicates=1, rps=20.0, retries=4)


def test_every_way_of_the_source_is_there_and_the_in_process_lock_on_one_and_two_processes():
    assert set(WAYS) == {"in_process_lock", "in_process_lock_2", "pessimistic", "cas", "redis_lock",
                         "redis_lock_short", "decr", "lua", "naive"}  # fmt: skip
    assert (WAYS["in_process_lock"].processes, WAYS["in_process_lock_2"].processes) == (1, 2)
