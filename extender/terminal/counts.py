"""Counted nouns."""


def many(count: int, noun: str) -> str:
    """`1 pod`, `2 pods`, `1,200 pods`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
