"""Objects from YAML and JSON files, with every fault told by file and line."""
