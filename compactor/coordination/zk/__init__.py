"""
Leadership, membership and control state in ZooKeeper, through kazoo.

What the state means is in `compactor.control` and `compactor.roles.leadership`.
"""
