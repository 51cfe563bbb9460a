"""Small pieces of the sentences in messages, reasons and answers."""


def one_line(text: object) -> str:
    """A text on one line: every run of white space becomes one blank, and none begins or ends it."""
    return " ".join(str(text).split())


def plural(count: int, noun: str, nouns: str = "") -> str:
    """A count with its noun: 1 delta, 2 deltas; `nouns` is the plural where an s isn't enough."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"
