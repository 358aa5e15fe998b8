"""The Gantt chart: one SVG file that reads well on light and on dark svg.

Few gangs get a row each, with the time that they waited. More of them are packed as bars into the cluster's
room, as high as what they hold of it; of very many only the sums by queue are drawn. Below, how many wait.
Marks show reservations and evictions.
"""
