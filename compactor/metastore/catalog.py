"""
Reads tables and partitions from the catalog, one or many thousands at a time.

Bulk look-ups cost a fixed number of statements per thousand names; columns that partitions share are read once.
Source: docs/metastore.md; Hive's MetaStoreDirectSql.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Select,
    and_,
    bindparam,
    func,
    literal,
    or_,
    select,
    union_all,
)

from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import batches, fetched
from compactor.metastore.model import DEFAULT_CATALOG, CatalogColumn, CatalogPlace, Entity, PartitionFacts, TableFacts
from compactor.metastore.owned_lists import OwnedList, OwnedLists, Pair, by_key, parameters_in
from compactor.planning.facts import NOT_STORED, StoredAs

_STATISTICS = (
    "numFiles",
    "numRows",
    "totalSize",
    "rawDataSize",
    "numFilesErasureCoded",
    "COLUMN_STATS_ACCURATE",
    "transient_lastDdlTime",
    "STATS_GENERATED_VIA_STATS_TASK",
)

_OF_EACH_SERDE = ("serialization.format",)
"""Every table's SerDe has it."""
T = TypeVar("T")

_MANY = 50

Facts = tuple[TableFacts, PartitionFacts | None]


class Catalog:
    """The catalog `hive` of one metastore, the only one with ACID tables."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema, dialect = database.schema, database.dialect
        schema = self._schema
        # Built once: building a statement costs more than running it.
        columns = OwnedList(schema.columns_v2, "cd_id", ("column_name", "type_name"))
        self._table_rows = self._select_tables()
        self._table_lists = OwnedLists(
            dialect,
            parameters_in(schema.table_params, "tbl_id"),
            parameters_in(schema.database_params, "db_id"),
            OwnedList(schema.partition_keys, "tbl_id", ("pkey_name", "pkey_type")),
            OwnedList(schema.bucketing_cols, "sd_id", ("bucket_col_name",)),
            OwnedList(schema.sort_cols, "sd_id", ("column_name",)),
            columns,
            parameters_in(schema.serde_params, "serde_id", _OF_EACH_SERDE),
        )
        self._database_lists = OwnedLists(dialect, parameters_in(schema.database_params, "db_id"))
        self._one_partition = self._select_partitions(
            schema.partitions.c.tbl_id == bindparam("tbl_id"), schema.partitions.c.part_name == bindparam("name")
        )
        self._partition_lists = OwnedLists(dialect, parameters_in(schema.partition_params, "part_id"), columns)
        few = parameters_in(schema.partition_params, "part_id", _STATISTICS)
        self._few_partition_lists = OwnedLists(dialect, few, columns)
        self._few_parameters = OwnedLists(dialect, few)
        self._serde_lists = OwnedLists(dialect, parameters_in(schema.serde_params, "serde_id"))

    def find_table(self, database: str, name: str) -> TableFacts | None:
        """One table; None when it doesn't exist."""
        entity = Entity(database, name)
        return self._database.glance(lambda connection: self._tables(connection, [entity]).get(entity))

    def find_partition(self, table: TableFacts, name: str) -> PartitionFacts | None:
        """One partition by Hive's partition name, with all its parameters; None when it doesn't exist."""

        def look(connection: Connection) -> PartitionFacts | None:
            rows = connection.execute(self._one_partition, {"tbl_id": table.tbl_id, "name": name}).all()
            return self._partitions(connection, rows, self._partition_lists).get((table.tbl_id, name))

        return self._database.glance(look)

    def stored_as(self, table: TableFacts, partition: PartitionFacts | None) -> StoredAs:
        """
        How the files of an insert-only table or a partition of it are read: a partition has a class and a SerDe of its
        own, and is read by its own properties and its table's. `NOT_STORED` of all other tables.
        """
        if not table.insert_only:
            return NOT_STORED
        schema = self._schema
        tbls, partitions, sds, serdes = schema.tbls.c, schema.partitions.c, schema.sds.c, schema.serdes.c
        of_table = select(tbls.sd_id).where(tbls.tbl_id == table.tbl_id)
        own = of_table
        if partition is not None:
            own = select(partitions.sd_id).where(partitions.part_id == partition.part_id)

        def look(connection: Connection) -> StoredAs:
            origin = schema.sds.outerjoin(schema.serdes, sds.serde_id == serdes.serde_id)
            columns = (sds.sd_id, sds.input_format, serdes.slib, sds.serde_id)
            where = sds.sd_id.in_([*connection.scalars(own), *connection.scalars(of_table)])
            rows = {row[0]: row for row in connection.execute(select(*columns).select_from(origin).where(where))}
            row = rows.get(connection.scalar(own))
            if row is None:
                return NOT_STORED
            serde_ids = [found[3] for found in rows.values() if found[3] is not None]
            groups = [
                table.parameters,
                *([] if partition is None else [partition.parameters]),
                *map(by_key, self._serde_lists.read(connection, serde_ids)[0].values()),
            ]
            return StoredAs(row[1], row[2], tuple(pair for group in groups for pair in group.items()))

        return self._database.glance(look)

    def facts_for(self, entities: Iterable[Entity]) -> Mapping[Entity, Facts]:
        """
        Table and partition of many entities at once.

        Entities whose table or named partition doesn't exist are missing from the answer; `tables_for` tells which of
        the two is missing.
        """
        wanted = list(dict.fromkeys(entities))

        def look(connection: Connection) -> dict[Entity, Facts]:
            tables, names = self._tables_and_names(connection, wanted)
            rows = [
                row
                for where in self._names_by_table(names)
                for row in connection.execute(self._select_partitions(where))
            ]
            partitions = self._partitions(connection, rows, self._few_partition_lists)
            return {
                entity: (table, partition)
                for entity, table, partition in _of_entities(wanted, tables, partitions)
                if entity.partition is None or partition is not None
            }

        return self._database.glance(look)

    def places_for(self, entities: Iterable[Entity]) -> Mapping[Entity, CatalogPlace]:
        """Tables of many entities at once, with only the location of each partition: one short row each."""
        wanted = list(dict.fromkeys(entities))

        def look(connection: Connection) -> dict[Entity, CatalogPlace]:
            tables, names = self._tables_and_names(connection, wanted)
            partitions, sds = self._schema.partitions.c, self._schema.sds.c
            places: dict[tuple[int, str], CatalogPlace] = {}
            described = {table.tbl_id: table for table in tables.values()}
            query = select(partitions.tbl_id, partitions.part_name, partitions.part_id, sds.location).select_from(
                self._partitions_with_storage
            )
            for where in self._names_by_table(names):
                for tbl_id, name, part_id, location in fetched(connection.execute(query.where(where))):
                    places[tbl_id, name] = CatalogPlace(described[tbl_id], name, part_id, location)
            return {
                entity: place or CatalogPlace.of(table, None)
                for entity, table, place in _of_entities(wanted, tables, places)
                if entity.partition is None or place is not None
            }

        return self._database.glance(look)

    def places_of(self, table: TableFacts) -> list[CatalogPlace]:
        """All partitions of a table, with only their names and locations."""
        partitions, sds = self._schema.partitions.c, self._schema.sds.c
        query = select(partitions.part_name, partitions.part_id, sds.location).select_from(
            self._partitions_with_storage
        )
        return self._database.glance(
            lambda connection: [
                CatalogPlace(table, name, part_id, location)
                for name, part_id, location in fetched(
                    connection.execute(query.where(partitions.tbl_id == table.tbl_id))
                )
            ]
        )

    def parameters_of(self, part_ids: Collection[int]) -> Mapping[int, Mapping[str, str]]:
        """
        Parameters of many partitions, without Hive's statistics.

        Partitions without other parameters are missing from the answer.
        """
        (found,) = self._database.glance(self._few_parameters.read, part_ids)
        return {number: by_key(pairs) for number, pairs in found.items()}

    def parameters_of_tables(self, keys: Collection[str]) -> Mapping[Entity, tuple[dict[str, str], dict[str, str]]]:
        """
        Those parameters with these names that the transactional tables, and their databases, have; tables without any
        are missing from the answer.
        """
        schema = self._schema
        dbs, tbls = schema.dbs.c, schema.tbls.c
        origin = schema.tbls.join(schema.dbs, and_(tbls.db_id == dbs.db_id, dbs.ctlg_name == DEFAULT_CATALOG))
        of_table, of_database = schema.table_params, schema.database_params
        selects = [
            select(dbs.name, tbls.tbl_name, literal(number), owned.c.param_key, owned.c.param_value)
            .select_from(origin.join(owned, owner))
            .where(owned.c.param_key.in_(keys), tbls.tbl_id.in_(self._transactional()))
            for number, owned, owner in (
                (0, of_table, of_table.c.tbl_id == tbls.tbl_id),
                (1, of_database, of_database.c.db_id == tbls.db_id),
            )
        ]
        found: dict[Entity, tuple[dict[str, str], dict[str, str]]] = {}
        for database, table, number, key, value in self._database.glance(
            lambda connection: connection.execute(union_all(*selects)).all()
        ):
            found.setdefault(Entity(database, table), ({}, {}))[number][key] = value or ""
        return found

    def parameter_names(self, parts: Collection[str]) -> set[str]:
        """The names of all tables' and databases' parameters that contain one of these parts, in any case."""
        owned = (self._schema.table_params.c.param_key, self._schema.database_params.c.param_key)
        selects = [
            select(key).distinct().where(or_(*(func.lower(key).like(f"%{part}%") for part in parts))) for key in owned
        ]
        return self._database.glance(lambda connection: set(connection.scalars(union_all(*selects))))

    def parameters_of_partitions(
        self, entities: Iterable[Entity], keys: Collection[str]
    ) -> Mapping[Entity, dict[str, str]]:
        """Those parameters with these names that partitions have; partitions without any are missing from the answer."""
        partitions, owned = self._schema.partitions, self._schema.partition_params
        query = (
            select(partitions.c.tbl_id, partitions.c.part_name, owned.c.param_key, owned.c.param_value)
            .select_from(partitions.join(owned, owned.c.part_id == partitions.c.part_id))
            .where(owned.c.param_key.in_(keys))
        )
        wanted = [entity for entity in dict.fromkeys(entities) if entity.partition is not None]

        def look(connection: Connection) -> dict[Entity, dict[str, str]]:
            rows = self._rows_of_tables(connection, dict.fromkeys(entity.whole_table() for entity in wanted))
            tables = {row[0]: Entity(row[5], row[6]) for row in rows}
            numbers, names = {table: number for number, table in tables.items()}, dict[int, list[str]]()
            for entity in wanted:
                if (number := numbers.get(entity.whole_table())) is not None:
                    names.setdefault(number, []).append(entity.partition or "")
            found: dict[Entity, dict[str, str]] = {}
            for where in self._names_by_table(names):
                for tbl_id, name, key, value in connection.execute(query.where(where)):
                    partition = Entity(tables[tbl_id].database, tables[tbl_id].table, name)
                    found.setdefault(partition, {})[key] = value or ""
            return found

        return self._database.glance(look)

    def tables_for(self, entities: Iterable[Entity]) -> Mapping[Entity, TableFacts]:
        """The tables of many entities, keyed by the entity without its partition."""
        wanted = list(dict.fromkeys(entity.whole_table() for entity in entities))
        return self._database.glance(self._tables, wanted)

    def databases(self) -> list[str]:
        """Names of all databases."""
        dbs = self._schema.dbs.c
        query = select(dbs.name).where(dbs.ctlg_name == DEFAULT_CATALOG).order_by(dbs.name)
        return self._database.glance(lambda connection: list(connection.scalars(query)))

    def database_locations(self) -> list[str]:
        """Where the databases lie, by their names."""
        dbs = self._schema.dbs.c
        query = select(dbs.db_location_uri).order_by(dbs.name)
        return self._database.glance(lambda connection: [found for found in connection.scalars(query) if found])

    def table_locations(self) -> list[tuple[str, str, str]]:
        """Where the transactional tables lie: database, table, location."""
        dbs, tbls, sds = self._schema.dbs.c, self._schema.tbls.c, self._schema.sds.c
        query = (
            select(dbs.name, tbls.tbl_name, sds.location)
            .join(self._schema.tbls, tbls.sd_id == sds.sd_id)
            .join(self._schema.dbs, tbls.db_id == dbs.db_id)
            .where(dbs.ctlg_name == DEFAULT_CATALOG, tbls.tbl_id.in_(self._transactional()))
        )
        return self._database.glance(
            lambda connection: [
                (database, table, found) for database, table, found in connection.execute(query) if found
            ]
        )

    def databases_with(self, key: str) -> Mapping[str, str]:
        """The value of a parameter, by the database that has it."""
        dbs, owned = self._schema.dbs.c, self._schema.database_params.c
        query = select(dbs.name, owned.param_value).where(
            owned.db_id == dbs.db_id, dbs.ctlg_name == DEFAULT_CATALOG, owned.param_key == key
        )
        return self._database.glance(
            lambda connection: {name: value or "" for name, value in connection.execute(query)}
        )

    def database_parameters(self, database: str) -> Mapping[str, str]:
        """The parameters of a database, by its name in any case; empty when the database doesn't exist."""
        dbs = self._schema.dbs.c
        query = select(dbs.db_id).where(dbs.ctlg_name == DEFAULT_CATALOG, dbs.name == database.lower())

        def look(connection: Connection) -> Mapping[str, str]:
            number = connection.scalar(query)
            if number is None:
                return {}
            (found,) = self._database_lists.read(connection, [number])
            return by_key(found.get(number, ()))

        return self._database.glance(look)

    def table_names(self, database: str, *, transactional: bool = True) -> list[str]:
        """Names of a database's tables; only transactional ones unless `transactional` is False."""
        dbs, tbls = self._schema.dbs.c, self._schema.tbls.c
        query = (
            select(tbls.tbl_name)
            .join(self._schema.dbs, tbls.db_id == dbs.db_id)
            .where(dbs.ctlg_name == DEFAULT_CATALOG, dbs.name == database.lower())
        )
        if transactional:
            query = query.where(tbls.tbl_id.in_(self._transactional()))
        return self._database.glance(lambda connection: list(connection.scalars(query.order_by(tbls.tbl_name))))

    def any_table_like(self, database: str, table: str) -> bool:
        """Whether there is a transactional table whose names, in lower case, fit these two patterns of `*` and `?`."""
        dbs, tbls = self._schema.dbs.c, self._schema.tbls.c
        query = (
            select(tbls.tbl_id)
            .join(self._schema.dbs, tbls.db_id == dbs.db_id)
            .where(
                dbs.ctlg_name == DEFAULT_CATALOG,
                dbs.name.like(_like(database), escape="!"),
                tbls.tbl_name.like(_like(table), escape="!"),
                tbls.tbl_id.in_(self._transactional()),
            )
            .limit(1)
        )
        return self._database.glance(lambda connection: connection.scalar(query)) is not None

    def _transactional(self) -> Select[Any]:
        parameters = self._schema.table_params.c
        # a product may know LIKE, but no =, of its long texts
        return select(parameters.tbl_id).where(
            parameters.param_key == "transactional", func.lower(parameters.param_value).like("true")
        )

    def partition_names(self, table: TableFacts, limit: int | None = None) -> list[str]:
        """Hive's names of a table's partitions."""
        partitions = self._schema.partitions.c
        query = (
            select(partitions.part_name)
            .where(partitions.tbl_id == table.tbl_id)
            .order_by(partitions.part_name)
            .limit(limit)
        )
        return self._database.glance(lambda connection: list(connection.scalars(query)))

    # Tables

    def _select_tables(self) -> Select[Any]:
        schema = self._schema
        dbs, tbls, sds, serdes = schema.dbs.c, schema.tbls.c, schema.sds.c, schema.serdes.c
        origin = schema.tbls.join(schema.dbs, tbls.db_id == dbs.db_id)
        origin = origin.outerjoin(schema.sds, tbls.sd_id == sds.sd_id).outerjoin(
            schema.serdes, sds.serde_id == serdes.serde_id
        )
        numbers = tbls.tbl_id, dbs.db_id, tbls.sd_id, sds.cd_id, sds.serde_id
        facts = dbs.name, tbls.tbl_name, tbls.tbl_type, tbls.owner, sds.location, sds.input_format, serdes.slib
        query = select(*numbers, *facts, sds.num_buckets, sds.is_storedassubdirectories).select_from(origin)
        named = dbs.name == bindparam("database"), self._database.dialect.among(tbls.tbl_name, "names")
        return query.where(dbs.ctlg_name == DEFAULT_CATALOG, *named)

    def _rows_of_tables(self, connection: Connection, wanted: Iterable[Entity]) -> list[Any]:
        """Rows of `_select_tables`."""
        rows: list[Any] = []
        by_database: dict[str, list[str]] = {}
        for entity in wanted:
            by_database.setdefault(entity.database, []).append(entity.table)
        for database, names in by_database.items():
            for batch in batches(names, self._database.dialect.at_once):
                rows += connection.execute(self._table_rows, {"database": database, "names": batch}).all()
        return rows

    def _tables(self, connection: Connection, wanted: Iterable[Entity]) -> dict[Entity, TableFacts]:
        rows = self._rows_of_tables(connection, wanted)

        def numbers(at: int) -> list[int]:
            return [number for number in dict.fromkeys(row[at] for row in rows) if number is not None]

        parameters, database_parameters, keys, buckets, sorts, described, of_serde = self._table_lists.read(
            connection, *map(numbers, (0, 1, 0, 2, 2, 3, 4))
        )
        found = {}
        for tbl_id, db_id, sd_id, cd_id, serde_id, *facts in rows:
            database, name, kind, owner, location, input_format, serde, num_buckets, in_subdirectories = facts
            found[Entity(database, name)] = TableFacts(
                tbl_id=int(tbl_id),
                database=database,
                name=name,
                table_type=kind or "",
                owner=owner,
                location=location,
                columns=_columns(described.get(cd_id, ())),
                partition_keys=_columns(keys.get(tbl_id, ())),
                input_format=input_format,
                serde=serde,
                buckets=max(0, int(num_buckets or 0)),
                bucket_columns=tuple(column for column, _ in buckets.get(sd_id, ())),
                sorted=bool(sorts.get(sd_id)),
                stored_as_subdirectories=bool(in_subdirectories),
                parameters=by_key(parameters.get(tbl_id, ())),
                database_parameters=by_key(database_parameters.get(db_id, ())),
                serde_parameters=by_key(of_serde.get(serde_id, ())),
            )
        return found

    def _tables_and_names(
        self, connection: Connection, wanted: Iterable[Entity]
    ) -> tuple[dict[tuple[str, str], TableFacts], dict[int, list[str]]]:
        """The tables by database and name, and by `tbl_id` the names of the requested partitions."""
        named: dict[tuple[str, str], list[str]] = {}
        for entity in wanted:
            names = named.setdefault((entity.database, entity.table), [])
            if entity.partition is not None:
                names.append(entity.partition)
        described = self._tables(connection, [Entity(database, table) for database, table in named])
        tables = {(table.database, table.name): table for table in described.values()}
        return tables, {table.tbl_id: named[key] for key, table in tables.items() if named[key]}

    # Partitions

    def _select_partitions(self, *where: ColumnElement[bool]) -> Select[Any]:
        partitions, sds = self._schema.partitions.c, self._schema.sds.c
        own = partitions.part_id, partitions.tbl_id, partitions.part_name
        query = select(*own, sds.cd_id, sds.location, sds.num_buckets, sds.input_format)
        return query.select_from(self._partitions_with_storage).where(*where)

    @property
    def _partitions_with_storage(self) -> FromClause:
        schema = self._schema
        return schema.partitions.outerjoin(schema.sds, schema.partitions.c.sd_id == schema.sds.c.sd_id)

    def _partitions(
        self, connection: Connection, rows: Sequence[Any], lists: OwnedLists
    ) -> dict[tuple[int, str], PartitionFacts]:
        """
        Args:
            rows: of `_select_partitions`.
            lists: of parameters and columns.
        """
        descriptors = {row[3] for row in rows}
        parameters, described = lists.read(
            connection, [row[0] for row in rows], [number for number in descriptors if number is not None]
        )
        shared = {number: _columns(described.get(number, ())) for number in descriptors}
        return {
            (int(tbl_id), name): PartitionFacts(
                int(part_id),
                name,
                location,
                by_key(parameters.get(part_id, ())),
                shared[cd_id],
                max(0, int(buckets or 0)),
                input_format,
            )
            for part_id, tbl_id, name, cd_id, location, buckets, input_format in rows
        }

    # Pieces

    def _names_by_table(self, wanted: Mapping[int, list[str]]) -> Iterable[ColumnElement[bool]]:
        """Conditions that together cover the names: a list per table that has many, pairs for the others."""
        tbl_id, part_name = self._schema.partitions.c.tbl_id, self._schema.partitions.c.part_name
        pairs: list[tuple[int, str]] = []
        dialect = self._database.dialect
        for table, names in wanted.items():
            if len(names) < _MANY:
                pairs += [(table, name) for name in names]
                continue
            for batch in batches(names, dialect.at_once):
                yield and_(tbl_id == table, dialect.among(part_name, batch))
        for batch_of_pairs in batches(pairs, dialect.pairs_at_once):
            yield dialect.paired(tbl_id, part_name, batch_of_pairs)


def _of_entities(
    wanted: Iterable[Entity], tables: Mapping[tuple[str, str], TableFacts], partitions: Mapping[tuple[int, str], T]
) -> Iterator[tuple[Entity, TableFacts, T | None]]:
    """Each entity whose table there is, with its table, and what there is of its partition (by `tbl_id` and name)."""
    for entity in wanted:
        if (table := tables.get((entity.database, entity.table))) is not None:
            yield entity, table, partitions.get((table.tbl_id, entity.partition)) if entity.partition else None


def _columns(pairs: Iterable[Pair]) -> tuple[CatalogColumn, ...]:
    return tuple(CatalogColumn(name, kind or "") for name, kind in pairs)


def _like(pattern: str) -> str:
    """A pattern of `*` and `?` as LIKE wants it, with `!` before what LIKE would take for its own."""
    return "".join({"*": "%", "?": "_"}.get(char, f"!{char}" if char in "%_!" else char) for char in pattern)
