"""Acting, storing and learning in compiled code, for small networks.

It is equivalent to `Algorithm.act` over numpy and to `Ring`, for the most common networks, actions and rows.
"""
