"""Terminal output for all layers: aligned columns, bars, progress, and suggestions of similar names."""
