"""Admission reviews, and the certificate that they are answered with."""
