"""Leadership, membership and control state in ZooKeeper, through kazoo."""
