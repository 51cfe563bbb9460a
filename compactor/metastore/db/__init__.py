"""The database itself: connections, dialects, schema detection, table definitions, errors."""
