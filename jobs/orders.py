"""The business rule that the jobs share: which order lines can be booked, and what they are worth.

A line cannot be booked when, by the first of these that applies:

- it has no price: `UnitPrice` is missing or not above zero (gifts, write-offs, bad debt);
- it has no customer: `CustomerID` is missing, so nobody owes it;
- its quantity does not fit: zero or less on an invoice, or above zero on a credit note;
- it has no date: `InvoiceDate` is missing, so it belongs to no day's books.

A credit note is an invoice whose number begins with C; its negative lines are booked and lower the revenue of their day.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit.


def unbookable() -> Column:
    """Say why a line cannot be booked; NULL when it can."""
    is_credit = F.col("InvoiceNo").startswith("C")
    fits = F.when(is_credit, F.col("Quantity") < 0).otherwise(F.col("Quantity") > 0)
    return (
        F.when(F.coalesce(F.col("UnitPrice"), F.lit(0)) <= 0, "no price")
        .when(F.col("CustomerID").isNull(), "no customer")
        .when(fits.isNull() | ~fits, "quantity does not fit the invoice")
        .when(F.col("InvoiceDate").isNull(), "no date")
    )


def amount() -> Column:
    """Return what a line is worth, exactly: prices have up to three decimals."""
    return (F.col("Quantity") * F.col("UnitPrice").cast("decimal(12,4)")).cast("decimal(20,4)")


def judged(lines: DataFrame) -> DataFrame:
    """Return what books need of each line, and in column `error` why one cannot be booked."""
    keys = [name for name in ("bookmark", "origin", "origin_bookmark", "InvoiceNo", "Country") if name in lines.columns]
    return lines.select(*keys, F.to_date("InvoiceDate").alias("day"), amount().alias("amount"), unbookable().alias("error"))


def booked(lines: DataFrame) -> DataFrame:
    """Return the lines that can be booked."""
    return judged(lines).where("error IS NULL").drop("error")


def revenue(lines: DataFrame) -> DataFrame:
    """Return the revenue of booked lines per day and country."""
    total = F.sum("amount").cast("decimal(20,4)")
    return lines.groupBy("day", "Country").agg(total.alias("revenue"), F.count("*").alias("lines"))
