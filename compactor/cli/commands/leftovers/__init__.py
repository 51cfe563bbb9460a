"""Commands about what is kept or left over beside the tables' files: undo a compaction, remove orphans."""
