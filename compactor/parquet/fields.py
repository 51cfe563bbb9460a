"""
Numbers of the fields in a Parquet footer that this package knows, and where a column chunk lies.

Source: parquet.thrift (FileMetaData, RowGroup, ColumnChunk, ColumnMetaData).
"""

from typing import Final

from compactor.parquet import thrift
from compactor.parquet.thrift import Struct

MAGIC: Final = b"PAR1"

FILE_VERSION: Final = 1
FILE_SCHEMA: Final = 2
FILE_ROWS: Final = 3
FILE_ROW_GROUPS: Final = 4
FILE_KEY_VALUES: Final = 5
FILE_CREATED_BY: Final = 6
FILE_COLUMN_ORDERS: Final = 7
FILE_ENCRYPTION: Final = (8, 9)

GROUP_COLUMNS: Final = 1
GROUP_ROWS: Final = 3
GROUP_SORTING: Final = 4
GROUP_FILE_OFFSET: Final = 5
GROUP_STORED: Final = 6
GROUP_ORDINAL: Final = 7

CHUNK_FILE_PATH: Final = 1
CHUNK_FILE_OFFSET: Final = 2
CHUNK_META: Final = 3
CHUNK_OFFSET_INDEX: Final = 4
CHUNK_OFFSET_INDEX_LENGTH: Final = 5
CHUNK_COLUMN_INDEX: Final = 6
CHUNK_COLUMN_INDEX_LENGTH: Final = 7
CHUNK_ENCRYPTION: Final = (8, 9)

META_TYPE: Final = 1
META_ENCODINGS: Final = 2
META_PATH: Final = 3
META_CODEC: Final = 4
META_VALUES: Final = 5
META_RAW: Final = 6
META_STORED: Final = 7
META_KEY_VALUES: Final = 8
META_DATA_PAGE: Final = 9
META_INDEX_PAGE: Final = 10
META_DICTIONARY_PAGE: Final = 11
META_STATISTICS: Final = 12
META_ENCODING_STATISTICS: Final = 13
META_BLOOM: Final = 14
META_BLOOM_LENGTH: Final = 15
META_SIZE_STATISTICS: Final = 16
META_OTHER_PAGES: Final = (META_INDEX_PAGE, META_DICTIONARY_PAGE)
GROUP_SHAPE: Final[thrift.Shape] = {GROUP_COLUMNS: {CHUNK_META: {}}}


def extent(meta: Struct) -> tuple[int, int]:
    """
    Where a column chunk begins and ends, by its metadata: a dictionary's offset counts if it is before the data's, or
    there is no data. An offset of 0 means that there is none.

    Source: parquet-mr's ColumnChunkMetaData.getStartingPos.
    """
    begin: int = meta[META_DATA_PAGE][1]
    dictionary: int = meta[META_DICTIONARY_PAGE][1] if META_DICTIONARY_PAGE in meta else 0
    if dictionary > 0 and (dictionary < begin or not begin):
        begin = dictionary
    return begin, begin + meta[META_STORED][1]
