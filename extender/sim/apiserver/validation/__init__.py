"""What a real API server refuses, in its words: forms that cannot be read (400), values not allowed (422)."""
