"""Oracle of small clusters, with slower and simpler algorithms.

Placements are searched exhaustively, shares are divided in exact fractions, and every reason that decide()
gives has to be true by its definition in docs/.
"""
