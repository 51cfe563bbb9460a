"""Hive's ACID layout: directory names, write ids, ROW__IDs, types, and which files a snapshot needs. Pure."""
