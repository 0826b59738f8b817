"""Partitions of a router: make, list, check, move and split them.

Every change of the map goes in one order: the partitions first refuse the old version, then the router writes the new
one. An interruption in between refuses calls of those partitions, and never lets two databases take them. `repair` ends
that state: the router's map is the truth.
"""
