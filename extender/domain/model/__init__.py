"""Records of objects: pods and groups, amounts, shapes, and the closed list of reasons."""
