"""Checks a staged result against its inputs before it is published."""
