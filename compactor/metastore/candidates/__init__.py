"""
Tells the Initiator which tables and partitions were written or aborted since its last look, which are queued, and which
keep failing.

A look begins with a fixed number of statements, and then reads the tables in parts: a warehouse of a million partitions
has a million candidates, which are never needed all at once. Source: docs/metastore.md; Hive's
FindPotentialCompactionsFunction, CheckFailedCompactionsHandler, TableOptimizer.
"""

from compactor.metastore.candidates.initiating import Initiating
from compactor.metastore.candidates.left import Left
from compactor.metastore.candidates.look import CandidatePart, Look
from compactor.metastore.candidates.unnamed import HandedOut

__all__ = ["CandidatePart", "HandedOut", "Initiating", "Left", "Look"]
