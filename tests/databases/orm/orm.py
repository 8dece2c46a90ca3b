"""The shared parts of the ORMs' tests: an engine on a real database with a shop in it, and functions that read it."""

from sqlalchemy import ForeignKey, String, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

import txbroker
from txbroker.databases.sqlalchemy import carry

SHOPS = ("sqlite", "postgresql", "mariadb")


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    state: Mapped[str] = mapped_column(String(20), default="new")


class Line(Base):
    """Refers to an order, and only COMMIT looks whether it is there."""

    __tablename__ = "order_lines"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    of_order: Mapped[int] = mapped_column(ForeignKey("orders.number", deferrable=True, initially="DEFERRED"))


def engine_url(request, kind):
    found = request.getfixturevalue(kind)
    return {"sqlite": f"sqlite:///{found}", "mariadb": getattr(found, "url", "")}.get(
        kind, getattr(found, "sqlalchemy_url", "")
    )


def make_shop(url, **options):
    """An engine; the caller disposes of it."""
    engine = create_engine(url, **options)
    tables = (
        [Order.__table__] if engine.dialect.name == "mysql" else None
    )  # which has no deferred constraints
    Base.metadata.create_all(engine, tables=tables)
    with engine.connect() as connection:
        txbroker.create_decision_table(connection)
    return engine


def numbers(engine):
    with Session(engine) as session:
        return list(session.scalars(select(Order.number).order_by(Order.number)))


def carrying(engine, broker, **choices):
    """Sessions that carry messages: their factory, and what to send with."""
    factory = sessionmaker(engine)
    return factory, carry(factory, broker, wait="commit", **choices, mode="two-phase")
