"""Evaluation of saved agents over grids of arguments, opponents and sides."""
