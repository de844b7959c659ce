"""Who plays: seats, the players of teams and sides, masks, team rewards."""
