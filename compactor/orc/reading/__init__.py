"""Stripes into Arrow's columns, and those that can't be read safely refused."""
