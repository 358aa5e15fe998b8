"""What commands of every layer print with: aligned columns, bars, progress, names that were probably meant."""
