"""The life of a group: which members make it whole, its phases, and the PodGroup of pods that name none."""
