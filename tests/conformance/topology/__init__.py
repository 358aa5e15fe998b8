"""The kinds of topologies.json: gangs in domains, as tables of Kueue and Volcano place them."""
