"""The life of a group: who makes it whole, its phases, and the PodGroup of pods that name none."""
