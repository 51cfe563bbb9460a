"""
What an ORC file says about itself: tail, codecs, statistics, schema, the writer's zone, and the key columns of ACID files.
"""
