"""Input and output of decide(): snapshots of groups, nodes and jobs, and the decisions on them."""
