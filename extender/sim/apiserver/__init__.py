"""An API server for a few resources, over real HTTP: storage, rules, routes."""
