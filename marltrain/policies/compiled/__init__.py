"""Acting, storing and learning in compiled code, for small networks.

It does what `Algorithm.act` over numpy and `Ring` do, for the commonest kinds of networks, actions and rows.
"""
