"""Acting and remembering in compiled code, for native games, whose env steps cost less than a call of numpy.

It does what `Algorithm.act` over numpy and `Ring` do, for the commonest kinds of networks, actions and rows.
"""
