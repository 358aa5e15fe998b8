"""What commands of every layer print with: aligned columns, bars, progress, near misses of names."""
