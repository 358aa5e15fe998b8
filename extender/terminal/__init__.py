"""Terminal output of all layers: aligned columns, bars, progress, near misses of names."""
