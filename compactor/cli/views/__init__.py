"""What several commands show: partitions and plans, and what compactions achieve."""
