"""Section ``strategies``: the ways of :mod:`bench.ways` sell the same stock to the same crowd, in turns."""

import statistics
from dataclasses import asdict, dataclass

from bench import stage
from bench.crowd import Crowd, Pressed, crowd, database_connect
from bench.options import Options, Progress
from bench.ways import WAYS, stock_lay_out, tables_create

STOCK = 200
SHOPPERS, SHOPPERS_QUICK = 1500, 500


@dataclass(frozen=True, slots=True)
class Sold:
    """One sale: ``oversold`` beyond the stock, ``duplicates`` beyond one a shopper, ``rps`` presses a second."""

    wins: int
    oversold: int
    duplicates: int
    rps: float
    retries: int


def measure(options: Options, progress: Progress) -> dict[str, dict[str, int | float]]:
    """``{way: {"wins", "oversold", "duplicates", "rps", "retries"}}``."""
    names = [name for name in WAYS if options.wants(name)]
    progress.expect(len(names) * options.rounds)
    sales: dict[str, list[Sold]] = {name: [] for name in names}
    shoppers = SHOPPERS_QUICK if options.quick else SHOPPERS
    with stage.servers(migrate=False), crowd() as pressing:
        database = database_connect()
        tables_create(database)
        activity_id = 0
        for number in range(1, options.rounds + 1):
            for name in names:
                progress.step(f"round {number}, {name}")
                for _sale in range(WAYS[name].sales):
                    activity_id += 1
                    sales[name].append(sale_hold(pressing, name, activity_id, database, shoppers))
    return {name: asdict(summary(sold)) for name, sold in sales.items()}


def sale_hold(pressing: Crowd, name: str, activity_id: int, database: object, shoppers: int) -> Sold:
    """One sale of a new activity."""
    from seize import store

    stock_lay_out(activity_id=activity_id, stock=STOCK, database=database, redis=store.client())
    done = pressing.press(name, activity_id=activity_id, shoppers=shoppers, processes=WAYS[name].processes)
    return sold_count(done, stock=STOCK, presses=2 * shoppers)


def sold_count(done: list[Pressed], *, stock: int, presses: int) -> Sold:
    """What the processes of one sale did, together."""
    winners = [user_id for pressed in done for user_id in pressed.winners]
    seconds = max(pressed.ended_s for pressed in done) - min(pressed.began_s for pressed in done)
    return Sold(
        wins=len(winners),
        oversold=max(0, len(winners) - stock),
        duplicates=len(winners) - len(set(winners)),
        rps=round(presses / seconds, 1),
        retries=sum(pressed.retries for pressed in done),
    )


def summary(sold: list[Sold]) -> Sold:
    """The sale that did most harm, since harm that happens at times happens; speed and retries by their medians."""
    worst = max(sold, key=lambda sale: (sale.oversold + sale.duplicates, sale.wins))
    return Sold(
        wins=worst.wins,
        oversold=worst.oversold,
        duplicates=worst.duplicates,
        rps=statistics.median(sale.rps for sale in sold),
        retries=round(statistics.median(sale.retries for sale in sold)),
    )
