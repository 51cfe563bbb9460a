"""Tables with files of no bytes beside good ones."""

COLUMNS = [("id", "int"), ("v", "string")]
PLACES = ("base", "delta", "loaded", "original", "only ones in a delta", "only ones in a base")


def table_of(warehouse, place):
    """
    Inserts, deletes of some, and what the place needs: originals, a base, or a delta of loaded files. Some buckets have no file, the
    first of them and the last.
    """
    table = warehouse.create_table(
        "db", "t", COLUMNS, buckets=8, bucket_columns=("id",), transactional=place != "original"
    )
    if place == "original":
        warehouse.write_original(table, [(n, "before") for n in range(4)], bucket=3)
        warehouse.convert(table)
    if "base" in place:
        with warehouse.begin() as txn:
            txn.overwrite(table, [(n, "base") for n in range(4)])
    for first in (10, 20):
        with warehouse.begin() as txn:
            txn.insert(table, [(first + n, f"v{n}") for n in range(4)])
    if place == "loaded":
        with warehouse.begin() as txn:
            txn.load(table, [(90 + n, "loaded") for n in range(4)])
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] % 10 == 1)
    return table


def put_empty_files(location, place):
    """Put files of no bytes into the place, beside its good files or instead of them; returns their paths."""
    pattern = {"loaded": "delta_*", "original": ".", "delete_delta": "delete_delta_*"}.get(
        place, f"{place.split()[-1]}_*"
    )
    directories = [location] if pattern == "." else sorted(location.glob(pattern))
    if place == "loaded":
        directories = [one for one in directories if (one / "000000_0").exists()]
    made = []
    for directory in directories[:1] if place.startswith("only") else directories:
        good = sorted(file for file in directory.iterdir() if file.is_file() and not file.name.startswith("_"))
        if place.startswith("only"):
            made += good
        elif good[0].name.startswith("bucket_"):
            rest = good[0].name[len("bucket_00000") :]
            taken = {file.name for file in good}
            made += [directory / name for number in range(12) if (name := f"bucket_{number:05}{rest}") not in taken]
        else:
            made += [
                directory / name for name in ("000000_0", "000000_0_copy_7", "000009_0") if directory / name not in good
            ]
    for file in made:
        file.write_bytes(b"")
    assert made
    return made
